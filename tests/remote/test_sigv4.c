/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures that AWS publishes: the examples of "Signature Calculations for the Authorization Header" (S3's API
 * reference) and of the Signature Version 4 test suite; requests to a store; addresses; lists of objects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "remote/s3.h"
#include "remote/s3_list.h"
#include "remote/sha256.h"
#include "remote/sigv4.h"
#include "remote/url.h"

#define NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
static const struct sigv4_keys s3_keys = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
                               suite_keys = {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
#define S3_HOST                                                                                                        \
    {                                                                                                                  \
        "host", "examplebucket.s3.amazonaws.com"                                                                       \
    }
#define S3_END                                                                                                         \
    {"x-amz-content-sha256", NOTHING}, { "x-amz-date", "20130524T000000Z" }

static const struct vector {
    const char *path, *query;
    const struct sigv4_header header[5];
    const char *method, *payload, *signature;
    bool suite;
} vectors[] = {
    {"/test.txt",
     "",
     {S3_HOST, {"range", "bytes=0-9"}, S3_END},
     "GET",
     NOTHING,
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
     false},
    {"/test%24file.text",
     "",
     {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
      S3_HOST,
      {"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"},
      {"x-amz-date", "20130524T000000Z"},
      {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
     "PUT",
     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
     false},
    {"/",
     "lifecycle",
     {S3_HOST, S3_END},
     "GET",
     NOTHING,
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
     false},
    {"/",
     "prefix=J&max-keys=2",
     {S3_HOST, S3_END},
     "GET",
     NOTHING,
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
     false},
    {"/",
     "",
     {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}},
     "GET",
     NOTHING,
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
     true},
    {"/",
     "Param2=value2&Param1=value1",
     {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}},
     "GET",
     NOTHING,
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
     true},
};

static void published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const struct vector *v = &vectors[i];
        struct str out = {0};
        int n = 0;
        while (n < 5 && v->header[n].name) n++;
        struct sigv4_request r = {v->method,
                                  v->path,
                                  v->query,
                                  v->suite ? "20150830T123600Z" : "20130524T000000Z",
                                  "us-east-1",
                                  v->suite ? "service" : "s3",
                                  v->payload,
                                  v->header,
                                  n};
        sigv4_authorization(&r, v->suite ? &suite_keys : &s3_keys, &out);
        if (!strstr(out.p, v->signature)) fail_msg("vector %zu: %s, wanted %s", i, out.p, v->signature);
        str_free(&out);
    }
}

/* FIPS 180-4's example, RFC 4231's second. */
static void hashes(void **state)
{
    (void)state;
    unsigned char sum[SHA256_BYTES];
    char text[SHA256_TEXT];
    sha256("abc", 3, sum);
    assert_string_equal(sha256_text(text, sum), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_keyed("Jefe", 4, "what do ya want for nothing?", 28, sum);
    assert_string_equal(sha256_text(text, sum), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

/* A name that another begins: by names, not by whole "name=value" texts, where '-' comes before '='. The signature is
 * made here step by step of the canonical request as it has to be. */
static void query_order(void **state)
{
    (void)state;
    const char *canonical = "GET\n/\na=1&a=2&a-b=1\nhost:h\n\nhost\n" NOTHING;
    const char *parts[] = {"20150830", "r", "s3", "aws4_request"};
    unsigned char sum[SHA256_BYTES], key[SHA256_BYTES];
    char hex[SHA256_TEXT], secret[64], text[256];
    sha256(canonical, strlen(canonical), sum);
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/r/s3/aws4_request\n%s",
             sha256_text(hex, sum));
    snprintf(secret, sizeof secret, "AWS4%s", s3_keys.secret);
    sha256_keyed(secret, strlen(secret), parts[0], strlen(parts[0]), key);
    for (int i = 1; i < 4; i++) {
        sha256_keyed(key, sizeof key, parts[i], strlen(parts[i]), sum);
        memcpy(key, sum, sizeof key);
    }
    sha256_keyed(key, sizeof key, text, strlen(text), sum);
    static const char *const orders[] = {"a-b=1&a=2&a=1", "a=1&a=2&a-b=1", "a=2&&a-b=1&a=1"};
    for (int i = 0; i < 3; i++) {
        struct str out = {0};
        const struct sigv4_header h[] = {{"host", "h"}};
        struct sigv4_request r = {"GET", "/", orders[i], "20150830T123600Z", "r", "s3", NOTHING, h, 1};
        sigv4_authorization(&r, &s3_keys, &out);
        assert_string_equal(strstr(out.p, "Signature=") + strlen("Signature="), sha256_text(hex, sum));
        str_free(&out);
    }
}

static void environment(const char *endpoint, const char *id, const char *secret, const char *token, const char *region)
{
    const char *names[] = {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
                           "AWS_REGION"};
    const char *values[] = {endpoint, id, secret, token, region};
    unsetenv("AWS_ENDPOINT_URL_S3");
    unsetenv("AWS_DEFAULT_REGION");
    for (int i = 0; i < 5; i++)
        if (values[i]) setenv(names[i], values[i], 1);
        else unsetenv(names[i]);
}

static void requests(void **state)
{
    (void)state;
    struct s3 s;
    struct s3_get g;
    struct err e;
    environment(NULL, NULL, NULL, NULL, NULL);
    assert_int_equal(s3_from_environment(&s, &e), OK);
    s3_get_make(&g, &s, "bucket", "a b/c+d%.txt", "", 0);
    assert_string_equal(str_text(&g.url), "https://s3.us-east-1.amazonaws.com/bucket/a%20b/c%2Bd%25.txt");
    assert_int_equal(g.n_headers, 0);
    s3_get_free(&g);
    s3_free(&s);

    environment("http://127.0.0.1:9000/base/", "ID", "SECRET", "TOKEN", "eu-x-1");
    assert_int_equal(s3_from_environment(&s, &e), OK);
    s3_get_make(&g, &s, "bucket", "", "list-type=2", 1440938160);
    assert_string_equal(str_text(&g.url), "http://127.0.0.1:9000/base/bucket?list-type=2");
    assert_int_equal(g.n_headers, 4);
    assert_string_equal(g.header[1], "x-amz-date: 20150830T123600Z");
    assert_string_equal(g.header[2], "x-amz-security-token: TOKEN");
    assert_non_null(strstr(g.header[3], "Credential=ID/20150830/eu-x-1/s3/aws4_request, "
                                        "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token"));
    assert_null(strstr(g.header[3], "SECRET"));
    s3_get_free(&g);
    s3_free(&s);

    /* The bucket in the host's name, and in the path where it cannot be. */
    setenv("AWS_S3_ADDRESSING_STYLE", "virtual", 1);
    environment("https://store.example:9000/base", "ID", "SECRET", NULL, NULL);
    assert_int_equal(s3_from_environment(&s, &e), OK);
    static const char *const urls[][3] = {
        {"my-bucket", "a/b c.txt", "https://my-bucket.store.example:9000/base/a/b%20c.txt"},
        {"my-bucket", "", "https://my-bucket.store.example:9000/base/"},
        {"my.bucket", "a", "https://store.example:9000/base/my.bucket/a"},
        {"My_bucket", "", "https://store.example:9000/base/My_bucket"},
    };
    char signatures[4][80];
    for (int i = 0; i < 4; i++) {
        s3_get_make(&g, &s, urls[i][0], urls[i][1], "", 1440938160);
        assert_string_equal(str_text(&g.url), urls[i][2]);
        snprintf(signatures[i], sizeof signatures[i], "%s", strstr(g.header[g.n_headers - 1], "Signature="));
        s3_get_free(&g);
    }
    /* Signed as what it is: the signature of a plain request for that host and path. */
    struct str wanted = {0};
    const struct sigv4_header h[] = {{"host", "my-bucket.store.example:9000"},
                                     {"x-amz-content-sha256", NOTHING},
                                     {"x-amz-date", "20150830T123600Z"}};
    struct sigv4_request plain = {"GET", "/base/a/b%20c.txt", "", "20150830T123600Z", "us-east-1", "s3", NOTHING, h, 3};
    sigv4_authorization(&plain, &(struct sigv4_keys){"ID", "SECRET"}, &wanted);
    assert_string_equal(strstr(wanted.p, "Signature="), signatures[0]);
    str_free(&wanted);
    s3_free(&s);
    setenv("AWS_S3_ADDRESSING_STYLE", "auto", 1);
    assert_int_equal(s3_from_environment(&s, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "path or virtual"));
    s3_free(&s);
    unsetenv("AWS_S3_ADDRESSING_STYLE");

    const char *bad[][5] = {{"ftp://h", "I", "S", NULL, NULL},     {"http://u:p@h", "I", "S", NULL, NULL},
                            {"http://", NULL, NULL, NULL, NULL},   {NULL, "I", NULL, NULL, NULL},
                            {NULL, NULL, "S", NULL, NULL},         {NULL, "I\r\nX: y", "S", NULL, NULL},
                            {NULL, "I", "S", "a\nb", NULL},        {NULL, "I", "S", NULL, "us/../x"},
                            {"http://h?x", NULL, NULL, NULL, NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        environment(bad[i][0], bad[i][1], bad[i][2], bad[i][3], bad[i][4]);
        assert_int_equal(s3_from_environment(&s, &e), ERR_REQUEST);
        s3_free(&s);
    }
    environment(NULL, NULL, NULL, NULL, NULL);
}

static void addresses(void **state)
{
    (void)state;
    struct url u;
    struct err e;
    static const struct {
        const char *text, *shown; /* NULL: refused */
    } rows[] = {
        {"https://user:pass@host:1/a/b.txt?X-Amz-Signature=secret#x", "https://host:1/a/b.txt"},
        {"http://h?secret", "http://h"},
        {"http://h/a@b", "http://h/a@b"},
        {"s3://bucket/a?b c", "s3://bucket/a?b c"},
        {"s3://bucket", "s3://bucket"},
        {"s3:///key", NULL},
        {"s3://", NULL},
        {"s3://../x", NULL},
        {"s3://a b/x", NULL},
        {"http:///x", NULL},
        {"http://:80/x", NULL},
        {"http://h/a b", NULL},
        {"http://h/a\nb", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int code = url_parse(&u, rows[i].text, &e);
        assert_int_equal(code, rows[i].shown ? OK : ERR_REQUEST);
        if (rows[i].shown) assert_string_equal(u.shown, rows[i].shown);
        else assert_null(strstr(e.text, "secret"));
        url_free(&u);
    }
    char text[] = "a%20b%2fc%zz%0";
    url_decode(text);
    assert_string_equal(text, "a b/c%zz%0");
    assert_false(url_is("C:/x"));
    assert_false(url_is("gs://b/x"));
}

static void lists(void **state)
{
    (void)state;
    struct s3_list l = {0};
    struct err e;
    const char *page =
        "<?xml version=\"1.0\"?><!-- <Contents> -->\n<ListBucketResult a=\"b\">\n"
        "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
        "<NextContinuationToken>a&amp;b&#x3d;&#61;</NextContinuationToken>"
        "<Contents>\n <Size>12</Size>\n <ETag>&quot;x&quot;</ETag>\n <Key>a%2Bb+c/%C3%A9</Key>\n</Contents>"
        "<Contents><Key>d</Key><Size>0</Size><Owner/></Contents>"
        "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes></ListBucketResult>";
    assert_int_equal(s3_list_add(&l, page, strlen(page), "x", &e), OK);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.entry[0].key, "a+b c/\xC3\xA9");
    assert_string_equal(l.entry[0].etag, "\"x\"");
    assert_int_equal(l.entry[0].bytes, 12);
    assert_string_equal(l.next, "a&b==");
    /* Cut short anywhere it is an error, never a shorter list. */
    for (size_t n = 0; n < strlen(page) - 1; n++) {
        struct s3_list cut = {0};
        assert_int_equal(s3_list_add(&cut, page, n, "x", &e), ERR_IO);
        s3_list_free(&cut);
    }
    static const char *const bad[] =
        {"",
         "<html></html>",
         "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
         "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
         "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
         "<ListBucketResult><Contents><Key>a</Key><Size>1x</Size></Contents></ListBucketResult>",
         "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
         "<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult></ListBucketResult>"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(s3_list_add(&l, bad[i], strlen(bad[i]), "x", &e), ERR_IO);
    s3_list_free(&l);
    char *code = s3_element("<Error><Code>NoSuchKey</Code><Message>a &lt; b</Mess", "Message");
    assert_string_equal(code, "a < b");
    xfree(code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published), cmocka_unit_test(hashes),    cmocka_unit_test(query_order),
        cmocka_unit_test(requests),  cmocka_unit_test(addresses), cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
