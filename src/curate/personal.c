/* SPDX-License-Identifier: Apache-2.0 */
/* personal.c: one walk over the text. An @ starts the look for an address around it; the beginning of a word, a +, a (
 * or a : the look for numbers. Every scanner reads a bounded stretch, so a hostile text costs no more per byte than
 * any.
 */
#include "curate/personal.h"

#include <string.h>
#include <strings.h>

const char *const personal_names[N_PERSONAL] = {"email", "ip", "phone", "card", "iban", "id"};
const char *const personal_marks[N_PERSONAL] = {"[EMAIL]", "[IP]", "[PHONE]", "[CARD]", "[IBAN]", "[ID]"};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

static bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

static bool in_word(char c) { return is_digit(c) || is_letter(c) || c == '_'; }

static bool in_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* Nothing that goes on with a number or word stands at p[at]. */
static bool ends(const char *p, size_t n, size_t at)
{
    if (at >= n) return true;
    if (in_word(p[at]) || p[at] == '@') return false;
    bool joins = p[at] == '.' || p[at] == ',' || p[at] == '-' || p[at] == ':';
    return !(joins && at + 1 < n && is_digit(p[at + 1]));
}

/* ---- e-mail --------------------------------------------------------------------------------------------------- */

enum { LOCAL_MOST = 64, LABEL_MOST = 63, DOMAIN_MOST = 253, TOP_LEAST = 2, TOP_MOST = 24 };

static bool in_local(char c) { return in_word(c) || (c && strchr(".%+-'", c)); }

/* Behind the domain at p[at..]; at: there is none. */
static size_t domain_end(const char *p, size_t n, size_t at)
{
    size_t from = at, good = at, label = at;
    for (;; label = ++at) {
        while (at < n && at - from < DOMAIN_MOST && (is_digit(p[at]) || is_letter(p[at]) || p[at] == '-')) at++;
        size_t length = at - label;
        if (!length || length > LABEL_MOST || p[label] == '-' || p[at - 1] == '-') return good;
        bool letters = length >= TOP_LEAST && length <= TOP_MOST;
        for (size_t i = label; i < at && letters; i++) letters = is_letter(p[i]);
        bool coded = length > 4 && !strncasecmp(p + label, "xn--", 4);
        if (label > from && (letters || coded)) good = at;
        if (at >= n || p[at] != '.' || at - from >= DOMAIN_MOST) return good;
    }
}

/* Around the @ at p[at], not before p[least]. */
static bool email_at(const char *p, size_t n, size_t at, size_t least, size_t *from, size_t *to)
{
    size_t f = at;
    while (f > least && at - f < LOCAL_MOST && in_local(p[f - 1])) f--;
    while (f < at && !is_digit(p[f]) && !is_letter(p[f]) && p[f] != '_') f++; /* quotation marks and the like */
    for (size_t i = f; i + 1 < at; i++)
        if (p[i] == '.' && p[i + 1] == '.') f = i + 2;
    if (f >= at || p[at - 1] == '.') return false;
    *from = f;
    *to = domain_end(p, n, at + 1);
    return *to > at + 1 && (*to == n || !in_word(p[*to]));
}

/* ---- addresses of machines ------------------------------------------------------------------------------------ */

/* A word before p[at] says that a number with points is something else. */
static bool after_version(const char *p, size_t at)
{
    static const char *const words[] = {"version", "ver", "v", "release", "section", "chapter", "revision", "build"};
    while (at && strchr(" .:=", p[at - 1])) at--;
    size_t from = at;
    while (from && at - from < 10 && is_letter(p[from - 1])) from--;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (at - from == strlen(words[i]) && !strncasecmp(p + from, words[i], at - from)) return true;
    return false;
}

static bool nobodys_ip4(const int *a)
{
    return a[0] == 0 || a[0] == 10 || a[0] == 127 || a[0] >= 224 || (a[0] == 169 && a[1] == 254) ||
           (a[0] == 172 && a[1] >= 16 && a[1] < 32) || (a[0] == 192 && a[1] == 168) ||
           (a[0] == 100 && a[1] >= 64 && a[1] < 128) || (a[0] == 192 && a[1] == 0 && (a[2] == 0 || a[2] == 2)) ||
           (a[0] == 198 && (a[1] == 18 || a[1] == 19)) || (a[0] == 198 && a[1] == 51 && a[2] == 100) ||
           (a[0] == 203 && a[1] == 0 && a[2] == 113);
}

/* Four numbers: their bytes. */
static size_t ip4_text(const char *p, size_t n, int part[4])
{
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
        size_t from = at;
        part[i] = 0;
        while (at < n && at - from < 4 && is_digit(p[at])) part[i] = part[i] * 10 + (p[at++] - '0');
        if (at == from || at - from > 3 || part[i] > 255 || (at - from > 1 && p[from] == '0')) return 0;
        if (i < 3 && (at == n || p[at++] != '.')) return 0;
    }
    return at;
}

/* p is the whole text, the address would begin at `at`. */
static size_t ip4_at(const char *p, size_t n, size_t at, bool private_ips)
{
    int part[4];
    size_t length = ip4_text(p + at, n - at, part);
    if (!length || !ends(p, n, at + length)) {
        bool port = length && at + length < n && p[at + length] == ':'; /* which stays */
        if (!port) return 0;
    }
    if (!private_ips && nobodys_ip4(part)) return 0;
    return after_version(p, at) ? 0 : length;
}

static size_t ip6_at(const char *p, size_t n, size_t at, bool private_ips)
{
    enum { MOST = 45 };
    size_t i = at;
    int groups = 0, gap = 0, first = -1, second = -1;
    bool digit = false;
    if (at + 1 < n && p[at] == ':' && p[at + 1] != ':') return 0;
    while (i < n && i - at < MOST) {
        if (p[i] == ':') {
            if (i + 1 >= n) return 0;
            if (p[i + 1] == ':') {
                if (gap++) return 0;
                i += 2;
                if (i >= n || !in_hex(p[i])) break;
                continue;
            }
            if (i == at || !in_hex(p[i + 1])) break; /* a mark behind the address */
            i++;
        }
        size_t from = i;
        int v = 0;
        int tail[4];
        size_t dotted = groups <= 6 ? ip4_text(p + i, n - i, tail) : 0;
        if (dotted && groups) { /* ::ffff:203.0.113.7 */
            groups += 2;
            digit = true;
            i += dotted;
            break;
        }
        while (i < n && i - from < 5 && in_hex(p[i])) {
            digit = digit || is_digit(p[i]);
            v = v * 16 + (is_digit(p[i]) ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
            i++;
        }
        if (i == from) break;
        if (i - from > 4) return 0;
        if (++groups == 1) first = v;
        if (groups == 2) second = v;
        if (groups > 8 || i >= n || p[i] != ':') break;
    }
    if (groups < 3 || !digit || groups > 8 || (gap ? groups > 7 : groups != 8)) return 0;
    if (i < n && (in_word(p[i]) || p[i] == ':')) return 0;
    bool nobodys = p[at] == ':' || (first & 0xFE00) == 0xFC00 || (first & 0xFFC0) == 0xFE80 || first >= 0xFF00 ||
                   (first == 0x2001 && second == 0xDB8);
    return nobodys && !private_ips ? 0 : i - at;
}

/* ---- telephones ----------------------------------------------------------------------------------------------- */

/* Country codes of ITU-T E.164 by their first two digits: how many digits; 0: none is assigned. */
static int country_code(const char *p, size_t n)
{
    if (!n || p[0] < '1' || p[0] > '9') return 0;
    if (p[0] == '1' || p[0] == '7') return 1;
    if (n < 2 || !is_digit(p[1])) return 0;
    static const char *const twos = "20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 "
                                    "61 62 63 64 65 66 81 82 84 86 90 91 92 93 94 95 98 ";
    static const char *const threes = "21 22 23 24 25 26 29 35 37 38 42 50 59 67 68 69 80 85 87 88 96 97 99 ";
    char two[4] = {p[0], p[1], ' ', 0};
    if (strstr(twos, two)) return 2;
    return n > 2 && is_digit(p[2]) && strstr(threes, two) ? 3 : 0;
}

/* Digits with marks between them, at most two in a row: bytes, *digits. */
static size_t spaced_digits(const char *p, size_t n, int most, int *digits)
{
    size_t at = 0, good = 0;
    int marks = 0;
    *digits = 0;
    for (; at < n && *digits <= most; at++) {
        if (is_digit(p[at])) {
            ++*digits;
            marks = 0;
            good = at + 1;
        } else if (!strchr(" -./()", p[at]) || !p[at] || ++marks > 2) {
            break;
        }
    }
    return good;
}

static size_t phone_plus(const char *p, size_t n, size_t at)
{
    int digits;
    if (!country_code(p + at + 1, n - at - 1)) return 0;
    size_t before = at; /* a sum is none: 3 +12345678 */
    while (before && p[before - 1] == ' ') before--;
    if (before && (is_digit(p[before - 1]) || p[before - 1] == ')')) return 0;
    size_t length = spaced_digits(p + at + 1, n - at - 1, 16, &digits);
    return digits >= 8 && digits <= 15 && ends(p, n, at + 1 + length) ? 1 + length : 0;
}

static bool three(const char *p, size_t n, size_t at)
{
    return at + 3 <= n && is_digit(p[at]) && is_digit(p[at + 1]) && is_digit(p[at + 2]);
}

/* (212) 555-0123, 212-555-0123, 212.555.0123, each with 1 and a mark before. */
static size_t phone_american(const char *p, size_t n, size_t at)
{
    size_t i = at;
    if (i + 1 < n && p[i] == '1' && (p[i + 1] == '-' || p[i + 1] == '.' || p[i + 1] == ' ')) i += 2;
    bool round = i < n && p[i] == '(';
    i += round;
    if (!three(p, n, i) || p[i] < '2') return 0;
    i += 3;
    char mark = '-';
    if (round) {
        if (i >= n || p[i++] != ')') return 0;
        if (i < n && p[i] == ' ') i++;
    } else {
        if (i >= n || (p[i] != '-' && p[i] != '.')) return 0;
        mark = p[i++];
    }
    if (!three(p, n, i) || p[i] < '2' || i + 3 >= n || (p[i + 3] != mark && !(round && p[i + 3] == ' '))) return 0;
    i += 4;
    return three(p, n, i) && i + 3 < n && is_digit(p[i + 3]) && ends(p, n, i + 4) ? i + 4 - at : 0;
}

/* A word before p[at], with a mark or two between, says that this is a telephone's number. */
static bool after_phone_word(const char *p, size_t at)
{
    static const char *const words[] = {"tel",      "telephone", "telefon", "phone",    "fon",     "mobile",
                                        "mobil",    "handy",     "fax",     "call",     "ph",      "cell",
                                        "whatsapp", "tlf",       "movil",   "telefono", "portable"};
    int marks = 0;
    while (at && marks < 3 && strchr(" .:#", p[at - 1])) at--, marks++;
    size_t from = at;
    while (from && at - from < 12 && is_letter(p[from - 1])) from--;
    if (!marks || (from && in_word(p[from - 1]))) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (at - from == strlen(words[i]) && !strncasecmp(p + from, words[i], at - from)) return true;
    return false;
}

static size_t phone_at(const char *p, size_t n, size_t at)
{
    if (p[at] == '+') return phone_plus(p, n, at);
    size_t length = phone_american(p, n, at);
    if (length || !(is_digit(p[at]) || p[at] == '(') || !after_phone_word(p, at)) return length;
    int digits;
    length = spaced_digits(p + at, n - at, 16, &digits);
    return digits >= 6 && digits <= 15 && ends(p, n, at + length) ? length : 0;
}

/* ---- cards ----------------------------------------------------------------------------------------------------- */

bool personal_luhn(const char *digits, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        int d = digits[n - 1 - i] - '0';
        if (i % 2) d = d < 5 ? 2 * d : 2 * d - 9;
        sum += d;
    }
    return sum % 10 == 0;
}

/* An issuer's numbers begin with lo to hi and have these lengths. */
static const struct issuer {
    int digits, lo, hi, least, most;
} issuers[] = {
    {1, 4, 4, 13, 19},       {2, 51, 55, 16, 16},     {4, 2221, 2720, 16, 16}, {2, 34, 34, 15, 15},
    {2, 37, 37, 15, 15},     {4, 6011, 6011, 16, 19}, {2, 65, 65, 16, 19},     {3, 644, 649, 16, 19},
    {4, 3528, 3589, 16, 19}, {2, 36, 36, 14, 19},     {2, 38, 39, 16, 19},     {3, 300, 305, 14, 19},
    {2, 62, 62, 16, 19},     {2, 67, 67, 16, 19},
};

static bool issued(const char *digits, int n)
{
    for (size_t i = 0; i < sizeof issuers / sizeof *issuers; i++) {
        const struct issuer *x = &issuers[i];
        int v = 0;
        for (int k = 0; k < x->digits; k++) v = v * 10 + digits[k] - '0';
        bool visa = x->digits > 1 || n == 13 || n == 16 || n == 19;
        if (v >= x->lo && v <= x->hi && n >= x->least && n <= x->most && visa) return true;
    }
    return false;
}

/* The longest number of whole groups, with one mark between them, that is a card's. */
static size_t card_at(const char *p, size_t n, size_t at)
{
    enum { MOST = 19, GROUPS = MOST / 3 + 1 };
    char digits[MOST];
    size_t end[GROUPS];
    int k = 0, group = 0, n_ends = 0, length[GROUPS];
    char mark = 0;
    for (size_t i = at; k <= MOST; i++) {
        if (i < n && is_digit(p[i])) {
            if (k == MOST) break;
            digits[k++] = p[i];
            group++;
            continue;
        }
        if (group < 3) break;
        end[n_ends] = i;
        length[n_ends++] = k;
        if (i + 1 >= n || !is_digit(p[i + 1]) || (p[i] != ' ' && p[i] != '-') || (mark && p[i] != mark)) break;
        mark = p[i];
        group = 0;
    }
    while (n_ends-- > 0)
        if (length[n_ends] >= 13 && ends(p, n, end[n_ends]) && issued(digits, length[n_ends]) &&
            personal_luhn(digits, length[n_ends]))
            return end[n_ends] - at;
    return 0;
}

/* ---- accounts -------------------------------------------------------------------------------------------------- */

int personal_mod97(const char *p, int n)
{
    int r = 0;
    for (int i = 0; i < n; i++) r = is_digit(p[i]) ? (r * 10 + p[i] - '0') % 97 : (r * 100 + p[i] - 'A' + 10) % 97;
    return r;
}

/* Lengths by country, of the registry of ISO 13616. */
static int iban_length(const char *country)
{
    static const char table[] =
        "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BR29BY28CH21CR22CY28CZ24DE22DK18DO28EE20EG29ES24FI18FO18FR27GB22GE22GI23GL"
        "18"
        "GR27GT28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MR27MT31MU30NL18NO"
        "15"
        "PK24PL28PS29PT25QA29RO24RS22SA24SC31SE24SI19SK24SM27ST25SV28TL23TN24TR26UA29VA22VG24XK20";
    for (size_t i = 0; i + 3 < sizeof table; i += 4)
        if (table[i] == country[0] && table[i + 1] == country[1]) return (table[i + 2] - '0') * 10 + table[i + 3] - '0';
    return 0;
}

static size_t iban_at(const char *p, size_t n, size_t at)
{
    if (at + 15 > n || !is_capital(p[at]) || !is_capital(p[at + 1]) || !is_digit(p[at + 2]) || !is_digit(p[at + 3]))
        return 0;
    int want = iban_length(p + at), k = 0;
    char text[36];
    size_t i = at;
    for (; k < want && i < n; i++) {
        if (is_digit(p[i]) || is_capital(p[i])) text[k++] = p[i];
        else if (p[i] != ' ' || k % 4 != 0 || p[i - 1] == ' ') break;
    }
    if (!want || k < want || !ends(p, n, i)) return 0;
    char turned[36];
    memcpy(turned, text + 4, (size_t)k - 4);
    memcpy(turned + k - 4, text, 4);
    return personal_mod97(turned, k) == 1 ? i - at : 0;
}

/* ---- all ------------------------------------------------------------------------------------------------------- */

/* Groups with spaces between stand behind another one, which is not a number that was found: a part of something else.
 */
static bool goes_before(const struct personal_scan *s, const char *p, size_t at, size_t length)
{
    return memchr(p + at, ' ', length) && at > 1 && p[at - 1] == ' ' && is_digit(p[at - 2]) && s->done + 1 != at;
}

static bool goes_on(const char *p, size_t n, size_t at, size_t length)
{
    return memchr(p + at, ' ', length) &&
           (at + length + 1 < n && p[at + length] == ' ' && is_digit(p[at + length + 1]));
}

static size_t number_at(const struct personal_scan *s, const char *p, size_t n, size_t at, enum personal *kind)
{
    const char *name;
    size_t got = 0;
    bool number = is_digit(p[at]);
    bool joined = at && (p[at - 1] == '.' || p[at - 1] == ',' || p[at - 1] == '-') && at > 1 && is_digit(p[at - 2]);
    if (joined && number) return 0; /* goes on with a number before it */
    if (s->wanted[ *kind = PERSONAL_CARD] && number) got = card_at(p, n, at);
    if (got && goes_before(s, p, at, got)) got = 0;
    if (!got && s->wanted[ *kind = PERSONAL_IBAN] && is_capital(p[at])) got = iban_at(p, n, at);
    if (!got && s->wanted[ *kind = PERSONAL_ID] && (number || is_capital(p[at]))) {
        got = personal_id_at(p + at, n - at, &name);
        if (got && (!ends(p, n, at + got) || goes_on(p, n, at, got) || goes_before(s, p, at, got))) got = 0;
    }
    if (!got && s->wanted[ *kind = PERSONAL_IP]) {
        if (number) got = ip4_at(p, n, at, s->private_ips);
        if (!got && (in_hex(p[at]) || p[at] == ':') && !(at && p[at - 1] == ':'))
            got = ip6_at(p, n, at, s->private_ips);
    }
    if (!got && s->wanted[ *kind = PERSONAL_PHONE] && (number || p[at] == '+' || p[at] == '('))
        got = phone_at(p, n, at);
    return got;
}

bool personal_next(struct personal_scan *s, const char *p, size_t n, size_t *from, size_t *to, enum personal *kind)
{
    for (size_t at = s->at; at < n; at++) {
        char c = p[at];
        bool found = false;
        if (c == '@') {
            found = s->wanted[PERSONAL_EMAIL] && email_at(p, n, at, s->done, from, to);
            *kind = PERSONAL_EMAIL;
        } else if ((is_digit(c) || is_letter(c) || c == '+' || c == '(' || c == ':') && !(at && in_word(p[at - 1]))) {
            size_t length = number_at(s, p, n, at, kind);
            found = length > 0;
            *from = at;
            *to = at + length;
        }
        if (!found) continue;
        s->at = s->done = *to;
        return true;
    }
    s->at = n;
    return false;
}
