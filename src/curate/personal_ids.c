/* SPDX-License-Identifier: Apache-2.0 */
/* personal_ids.c: national numbers: how each is written, and its check.
 *
 * A pattern is digits (d), capital letters (L), either (A), and marks that stand for themselves. What is checked is the
 * number without marks. To add one: a row, and its check.
 */
#include <string.h>

#include "curate/personal.h"

enum { ID_LONGEST = 24 };

static int value(char c) { return c >= '0' && c <= '9' ? c - '0' : c - 'A' + 10; }

static int two(const char *p) { return value(p[0]) * 10 + value(p[1]); }

static int weighted(const char *p, int n, const int *weight)
{
    int sum = 0;
    for (int i = 0; i < n; i++) sum += value(p[i]) * weight[i];
    return sum;
}

static bool is_day(int month, int day) { return month >= 1 && month <= 12 && day >= 1 && day <= 31; }

/* The remainder of n digits, which may be more than a word holds. */
static int remainder_by(const char *p, int n, int by)
{
    int r = 0;
    for (int i = 0; i < n; i++) r = (r * 10 + value(p[i])) % by;
    return r;
}

/* Germany, tax number of a person: ISO 7064 mod 11, 10; one digit comes twice or three times among the first ten, the
 * others once at most; the first is not 0. */
static bool de_tax(const char *p)
{
    int count[10] = {0}, several = 0, product = 10;
    if (p[0] == '0') return false;
    for (int i = 0; i < 10; i++) {
        count[value(p[i])]++;
        int sum = (value(p[i]) + product) % 10;
        product = (sum ? sum : 10) * 2 % 11;
    }
    for (int i = 0; i < 10; i++) {
        if (count[i] > 3) return false;
        several += count[i] > 1;
    }
    int check = 11 - product;
    return several == 1 && (check == 10 ? 0 : check) == value(p[10]);
}

/* France: sex, year, month, department, commune, order, and 97 less the remainder. Corsica's letters are not known. */
static bool fr_nir(const char *p)
{
    int month = two(p + 3);
    bool plausible = (p[0] == '1' || p[0] == '2') && ((month >= 1 && month <= 12) || (month >= 20 && month <= 42));
    return plausible && 97 - remainder_by(p, 13, 97) == two(p + 13);
}

static const char spanish[] = "TRWAGMYFPDXBNJZSQVHLCKE";

static bool es_dni(const char *p) { return spanish[remainder_by(p, 8, 23)] == p[8]; }

static bool es_nie(const char *p)
{
    if (p[0] < 'X' || p[0] > 'Z') return false;
    char digits[8] = {(char)('0' + p[0] - 'X')};
    memcpy(digits + 1, p + 1, 7);
    return spanish[remainder_by(digits, 8, 23)] == p[8];
}

/* Italy: odd places count by a table, even ones as they are. */
static bool it_cf(const char *p)
{
    static const int odd[26] = {1,  0,  5, 7, 9, 13, 15, 17, 19, 21, 2,  4,  18,
                                20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23};
    int sum = 0;
    if (!strchr("ABCDEHLMPRST", p[8])) return false; /* the month */
    for (int i = 0; i < 15; i++) {
        int v = p[i] <= '9' ? p[i] - '0' : p[i] - 'A';
        sum += i % 2 == 0 ? odd[v] : v;
    }
    return p[15] == 'A' + sum % 26;
}

static bool br_cpf(const char *p)
{
    static const int first[] = {10, 9, 8, 7, 6, 5, 4, 3, 2}, second[] = {11, 10, 9, 8, 7, 6, 5, 4, 3, 2};
    int a = weighted(p, 9, first) * 10 % 11 % 10, b = weighted(p, 10, second) * 10 % 11 % 10;
    return a == value(p[9]) && b == value(p[10]) && strspn(p, (char[2]){p[0]}) < 11;
}

/* Poland: the century is in the month. */
static bool pl_pesel(const char *p)
{
    static const int weight[] = {1, 3, 7, 9, 1, 3, 7, 9, 1, 3};
    return is_day(two(p + 2) % 20, two(p + 4)) && (10 - weighted(p, 10, weight) % 10) % 10 == value(p[10]);
}

static bool se_pnr(const char *p) { return is_day(two(p + 2), two(p + 4)) && personal_luhn(p, 10); }

static bool fi_hetu(const char *p)
{
    static const char letters[] = "0123456789ABCDEFHJKLMNPRSTUVWXY";
    char digits[9];
    memcpy(digits, p, 9);
    return is_day(two(p + 2), two(p)) && letters[remainder_by(digits, 9, 31)] == p[9];
}

/* With a letter for the century in the middle, which the check leaves out. */
static bool fi_hetu_letter(const char *p)
{
    char plain[10];
    memcpy(plain, p, 6);
    memcpy(plain + 6, p + 7, 4);
    return strchr("ABCDEFYXWVU", p[6]) && fi_hetu(plain);
}

/* China: ISO 7064 mod 11-2. */
static bool cn_rid(const char *p)
{
    static const int weight[] = {7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2};
    int year = two(p + 6);
    return (year == 19 || year == 20) && is_day(two(p + 10), two(p + 12)) && p[0] >= '1' && p[0] <= '8' &&
           "10X98765432"[weighted(p, 17, weight) % 11] == p[17];
}

/* India: Verhoeff's check, by the dihedral group of ten. */
static bool in_aadhaar(const char *p)
{
    static const char power[8][11] = {"0123456789", "1576283094", "5803796142", "8916043527",
                                      "9453126870", "4286573901", "2793806415", "7046913258"};
    int c = 0;
    if (p[0] < '2') return false;
    for (int i = 0; i < 12; i++) {
        int d = value(power[i % 8][value(p[11 - i])]);
        /* In the group: turns are 0 to 4, mirrored ones 5 to 9. */
        c = c < 5 ? (d < 5 ? (c + d) % 5 : (c + d - 5) % 5 + 5) : (d < 5 ? (c - 5 - d + 5) % 5 + 5 : (c - d + 5) % 5);
    }
    return c == 0;
}

static bool uk_nhs(const char *p)
{
    static const int weight[] = {10, 9, 8, 7, 6, 5, 4, 3, 2};
    int check = 11 - weighted(p, 9, weight) % 11;
    return (check == 11 ? 0 : check) == value(p[9]);
}

static bool kr_rrn(const char *p)
{
    static const int weight[] = {2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5};
    return is_day(two(p + 2), two(p + 4)) && p[6] >= '1' && p[6] <= '8' &&
           (11 - weighted(p, 12, weight) % 11) % 10 == value(p[12]);
}

static const struct id_row {
    const char *name, *pattern;
    bool (*right)(const char *p);
} ids[] = {
    {"cn_rid", "ddddddddddddddddd*", cn_rid},
    {"fr_nir", "ddddddddddddddd", fr_nir},
    {"fr_nir", "d dd dd dd ddd ddd dd", fr_nir},
    {"it_cf", "LLLLLLddLddLdddL", it_cf},
    {"kr_rrn", "dddddd-ddddddd", kr_rrn},
    {"in_aadhaar", "dddd dddd dddd", in_aadhaar},
    {"br_cpf", "ddd.ddd.ddd-dd", br_cpf},
    {"de_tax", "ddddddddddd", de_tax},
    {"de_tax", "dd ddd ddd ddd", de_tax},
    {"pl_pesel", "ddddddddddd", pl_pesel},
    {"se_pnr", "dddddd-dddd", se_pnr},
    {"fi_hetu", "dddddd-dddA", fi_hetu},
    {"fi_hetu", "ddddddLdddA", fi_hetu_letter},
    {"uk_nhs", "ddd ddd dddd", uk_nhs},
    {"es_dni", "ddddddddL", es_dni},
    {"es_nie", "LdddddddL", es_nie},
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

/* c at a place of a pattern: *: a digit or X. */
static bool fits(char pattern, char c)
{
    switch (pattern) {
    case 'd': return is_digit(c);
    case 'L': return is_capital(c);
    case 'A': return is_digit(c) || is_capital(c);
    case '*': return is_digit(c) || c == 'X';
    default: return c == pattern;
    }
}

/* The number without marks; the length of what is at p, 0: it is not written so. */
static size_t match(const char *pattern, const char *p, size_t n, char plain[ID_LONGEST])
{
    size_t i = 0, k = 0;
    for (; pattern[i]; i++) {
        if (i == n || !fits(pattern[i], p[i])) return 0;
        if (strchr("dLA*", pattern[i])) plain[k++] = p[i];
    }
    plain[k] = 0;
    return i;
}

size_t personal_id_at(const char *p, size_t n, const char **name)
{
    char plain[ID_LONGEST];
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        size_t length = match(ids[i].pattern, p, n, plain);
        bool ends = length == n || (length && !is_digit(p[length]) && !is_capital(p[length] & ~32) && p[length] != '_');
        if (!length || !ends) continue;
        if (!ids[i].right(plain)) continue;
        *name = ids[i].name;
        return length;
    }
    return 0;
}
