/* SPDX-License-Identifier: Apache-2.0 */
/* filter_personal.c: personal data (personal.h) becomes a mark that says what stood there. */
#include "curate/filter.h"
#include "curate/personal.h"

struct options {
    bool wanted[N_PERSONAL], private_ips;
    int64_t max;
};

static const struct filter_rule rules[] = {{"personal", 1, 1000, true}};

#define WANTED(what, kind, about)                                                                                      \
    {                                                                                                                  \
        .path = what, .type = CONF_BOOL, .offset = offsetof(struct options, wanted[kind]), .otherwise = "true",        \
        .doc = about                                                                                                   \
    }
/* clang-format off */
static const struct conf_row rows[] = {
    WANTED("email", PERSONAL_EMAIL, "addresses of e-mail become [EMAIL]"),
    WANTED("ip", PERSONAL_IP, "public addresses of IPv4 and IPv6 become [IP]"),
    {.path = "private_ips", .type = CONF_BOOL, .offset = offsetof(struct options, private_ips), .otherwise = "false", .doc = "with ip: private, loopback and documentation's addresses, too"},
    WANTED("phone", PERSONAL_PHONE, "telephone numbers become [PHONE]: with +, North American ones, and what follows Tel. or the like"),
    WANTED("card", PERSONAL_CARD, "numbers of credit cards that pass Luhn's check become [CARD]"),
    WANTED("iban", PERSONAL_IBAN, "IBANs that pass their check become [IBAN]"),
    WANTED("id", PERSONAL_ID, "national numbers with check digits become [ID]: br cn de es fi fr in it kr pl se uk"),
    {.path = "max", .type = CONF_INT, .offset = offsetof(struct options, max), .otherwise = "null", .lo = 1, .hi = 1e9, .doc = "drop documents with more of them"},
    {0},
};
/* clang-format on */

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    struct personal_scan s = {.private_ips = o->private_ips};
    for (int i = 0; i < N_PERSONAL; i++) s.wanted[i] = o->wanted[i];
    size_t from, to, done = 0;
    enum personal kind;
    int64_t n = 0;
    while (personal_next(&s, d->text.p, d->text.n, &from, &to, &kind)) {
        findings_removed(f, d->text.p + from, to - from);
        str_add(&d->spare, d->text.p + done, from - done);
        str_puts(&d->spare, personal_marks[kind]);
        done = to;
        n++;
    }
    if (finds(f, 0, (double)n, 0, o->max ? (double)o->max : INFINITY)) {
        str_clear(&d->spare);
        return 0;
    }
    if (!n) return FILTER_KEEPS;
    str_add(&d->spare, d->text.p + done, d->text.n - done);
    document_replace(d);
    return FILTER_KEEPS;
}

const struct filter filter_personal = {
    .kind = {.name = "personal",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "puts marks in place of e-mail and IP addresses, telephones, cards, accounts, national numbers"},
    .source = "as FineWeb does for the first two (Penedo et al. 2024)",
    FILTER_RULES_OF(rules),
    .judge = judge,
};
