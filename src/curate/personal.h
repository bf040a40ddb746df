/* SPDX-License-Identifier: Apache-2.0 */
/* personal.h: personal data in text: where it is, found by hand-written scanners.
 *
 *   email   local part of ASCII letters, digits and . _ % + - ', @, labels with a last one of letters
 *   ip      IPv4 in four plain numbers up to 255, IPv6 as RFC 4291 writes it with three groups or more and a digit.
 *           Addresses that stand for no one's machine (private, loopback, link-local, multicast, documentation) are
 *           left unless asked for, and so is what follows a word such as "version"
 *   phone   + and a country code that is assigned, 8 to 15 digits; North American numbers as (212) 555-0123,
 *           212-555-0123, 212.555.0123; any 6 to 15 digits behind a word such as "Tel." or "phone"
 *   card    13 to 19 digits in groups of three or more, an issuer's first digits and length, Luhn's check digit
 *   iban    a country's length and the remainder 1 by 97 (ISO 7064), with or without spaces
 *   id      national numbers that carry check digits, each checked: the table in personal_ids.c. Numbers without check
 *           digits (United States' social security number) are not looked for: any nine digits would do
 *
 * What is found is bounded in length and begins and ends at the edge of a word of ASCII letters and digits. Finding is
 * linear in the text: each place is looked at by a few scanners for at most PERSONAL_LONGEST bytes.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_CURATE_PERSONAL_H
#define TUTTI_CURATE_PERSONAL_H

#include <stdbool.h>
#include <stddef.h>

enum personal { PERSONAL_EMAIL, PERSONAL_IP, PERSONAL_PHONE, PERSONAL_CARD, PERSONAL_IBAN, PERSONAL_ID, N_PERSONAL };
enum { PERSONAL_LONGEST = 320 };
extern const char *const personal_names[N_PERSONAL]; /* "email" */
extern const char *const personal_marks[N_PERSONAL]; /* "[EMAIL]", what a text gets instead */

struct personal_scan {
    bool wanted[N_PERSONAL];
    bool private_ips; /* these too */
    size_t at;        /* where the search goes on; 0 at first */
    size_t done;      /* behind the last one that was found */
};
/* The next one: true with p[*from .. *to). */
bool personal_next(struct personal_scan *s, const char *p, size_t n, size_t *from, size_t *to, enum personal *kind);

/* A national number at p[0..n): its bytes, 0: none. *name: "fr_nir". For personal.c. */
size_t personal_id_at(const char *p, size_t n, const char **name);

/* Pieces that are of use elsewhere. digits: '0' to '9'. */
bool personal_luhn(const char *digits, int n);
int personal_mod97(const char *p, int n); /* of letters as 10 to 35, and digits */

#endif
