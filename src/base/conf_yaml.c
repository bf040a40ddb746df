/* SPDX-License-Identifier: Apache-2.0 */
/* conf_yaml.c: libyaml's events become a tree.
 *
 * Events, not the library's document API, because only events show anchors, aliases and tags, and a
 * configuration that means something else three lines further down is what we want to refuse. The tree is built
 * without recursion over a stack of open nodes; cost: one node per value, one comparison per pair of keys in a
 * map (maps here have a dozen keys).
 */
#include "base/conf_yaml.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define MAX_DEPTH 32
#define MAX_MAP 1000 /* keys in one map: keeps the duplicate check from becoming quadratic on hostile input */

struct open_node {
    struct conf_node *node;
    struct conf_node **tail; /* where the next member goes */
    const char *key;         /* a map's key that waits for its value */
    int key_line;
};

struct reader {
    yaml_parser_t parser;
    struct arena *arena;
    const char *name;
    struct err *e;
    struct open_node open[MAX_DEPTH];
    int depth;
    struct conf_node *root;
};

static int line_of(yaml_mark_t mark) { return (int)mark.line + 1; }

/* What libyaml could not read, in its words, with a hint where those are famously unhelpful. */
static int syntax_error(struct reader *r)
{
    yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return err_set(r->e, ERR_MEMORY, "%s: out of memory", r->name);
    if (p->error == YAML_READER_ERROR) {
        int line = 1; /* the reader counts bytes; the mark stops short of them */
        for (size_t i = 0; i < p->problem_offset && i < (size_t)(p->input.string.end - p->input.string.start); i++)
            line += p->input.string.start[i] == '\n';
        return err_set(r->e, ERR_REQUEST, "%s:%d: not a text file in UTF-8: %s", r->name, line, p->problem);
    }
    const char *problem = p->problem ? p->problem : "cannot be read";
    bool token = strstr(problem, "cannot start any token") != NULL;
    return err_set(r->e, ERR_REQUEST, "%s:%d: not valid YAML: %s%s%s%s", r->name, line_of(p->problem_mark),
                   p->context ? p->context : "", p->context ? ", " : "", problem,
                   token ? "; indent with spaces, not tabs, and put text with special characters in quotes" : "");
}

/* Hangs a finished scalar or a fresh map or list where the innermost open node expects it. */
static int place(struct reader *r, struct conf_node *v)
{
    if (r->depth == 0) {
        r->root = v;
        return OK;
    }
    struct open_node *o = &r->open[r->depth - 1];
    if (o->node->kind == CONF_NODE_MAP) {
        v->key = o->key;
        v->key_line = o->key_line;
        o->key = NULL;
    }
    *o->tail = v;
    o->tail = &v->next;
    o->node->n++;
    return OK;
}

static bool wants_key(const struct reader *r)
{
    return r->depth > 0 && r->open[r->depth - 1].node->kind == CONF_NODE_MAP && !r->open[r->depth - 1].key;
}

static int take_key(struct reader *r, const char *key, int line)
{
    struct open_node *o = &r->open[r->depth - 1];
    for (const struct conf_node *m = o->node->first; m; m = m->next)
        if (!strcmp(m->key, key))
            return err_set(r->e, ERR_REQUEST, "%s:%d: %s: given twice, first on line %d; keep one of the two", r->name,
                           line, key, m->key_line);
    if (o->node->n >= MAX_MAP)
        return err_set(r->e, ERR_REQUEST, "%s:%d: more than %d keys in one map", r->name, line, MAX_MAP);
    o->key = key;
    o->key_line = line;
    return OK;
}

static int take_scalar(struct reader *r, const yaml_event_t *ev)
{
    int line = line_of(ev->start_mark);
    const char *p = (const char *)ev->data.scalar.value;
    size_t n = ev->data.scalar.length;
    if (memchr(p, 0, n)) return err_set(r->e, ERR_REQUEST, "%s:%d: text with a NUL character", r->name, line);
    char *text = arena_alloc(r->arena, n + 1);
    memcpy(text, p, n);
    if (wants_key(r)) return take_key(r, text, line);
    struct conf_node *v = arena_alloc(r->arena, sizeof *v);
    *v = (struct conf_node){.kind = CONF_NODE_SCALAR, .line = line, .text = text};
    v->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return place(r, v);
}

static int take_start(struct reader *r, enum conf_node_kind kind, int line)
{
    if (wants_key(r)) return err_set(r->e, ERR_REQUEST, "%s:%d: a key must be a plain word", r->name, line);
    if (r->depth == MAX_DEPTH)
        return err_set(r->e, ERR_REQUEST, "%s:%d: nested deeper than %d", r->name, line, MAX_DEPTH);
    struct conf_node *v = arena_alloc(r->arena, sizeof *v);
    *v = (struct conf_node){.kind = kind, .line = line};
    int code = place(r, v);
    if (!code) r->open[r->depth++] = (struct open_node){.node = v, .tail = &v->first};
    return code;
}

static int refuse(struct reader *r, const yaml_event_t *ev, const char *what)
{
    return err_set(r->e, ERR_REQUEST, "%s:%d: %s", r->name, line_of(ev->start_mark), what);
}

static const char anchors[] = "anchors (&name) and aliases (*name) are not supported; write the value out, and put "
                              "text that begins with & or * in quotes";
static const char tags[] = "tags (!name) are not supported; put text that begins with ! in quotes";

static int take_event(struct reader *r, const yaml_event_t *ev)
{
    switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
        return r->root ? refuse(r, ev, "a second document; a configuration is one document") : OK;
    case YAML_ALIAS_EVENT: return refuse(r, ev, anchors);
    case YAML_SCALAR_EVENT:
        if (ev->data.scalar.anchor) return refuse(r, ev, anchors);
        if (ev->data.scalar.tag) return refuse(r, ev, tags);
        return take_scalar(r, ev);
    case YAML_SEQUENCE_START_EVENT:
        if (ev->data.sequence_start.anchor) return refuse(r, ev, anchors);
        if (ev->data.sequence_start.tag) return refuse(r, ev, tags);
        return take_start(r, CONF_NODE_LIST, line_of(ev->start_mark));
    case YAML_MAPPING_START_EVENT:
        if (ev->data.mapping_start.anchor) return refuse(r, ev, anchors);
        if (ev->data.mapping_start.tag) return refuse(r, ev, tags);
        return take_start(r, CONF_NODE_MAP, line_of(ev->start_mark));
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: r->depth--; return OK;
    default: return OK;
    }
}

/* A word or a number, which YAML reads as it stands. Most defaults are one, and a parser costs 64 KiB each. */
static bool is_word(const char *text, size_t n)
{
    static const char inside[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-";
    const size_t letters = sizeof inside - 5; /* and digits: what it may begin with */
    for (size_t i = 0; i < n; i++) {
        const char *at = text[i] ? strchr(inside, text[i]) : NULL;
        if (!at || (!i && at >= inside + letters)) return false;
    }
    return n > 0;
}

int conf_yaml_read(struct conf_node **root, const char *text, size_t n, const char *name, struct arena *a,
                   struct err *e)
{
    *root = NULL;
    if (text && is_word(text, n)) {
        char *word = arena_alloc(a, n + 1);
        memcpy(word, text, n);
        *root = arena_alloc(a, sizeof **root);
        **root = (struct conf_node){.kind = CONF_NODE_SCALAR, .line = 1, .text = word};
        return OK;
    }
    struct reader r = {.arena = a, .name = name, .e = e};
    if (!yaml_parser_initialize(&r.parser)) return err_set(e, ERR_MEMORY, "%s: out of memory", name);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)(text ? text : ""), n);
    int code = OK;
    for (bool more = true; more && !code;) {
        yaml_event_t ev;
        if (!yaml_parser_parse(&r.parser, &ev)) {
            code = syntax_error(&r);
            break;
        }
        code = take_event(&r, &ev);
        more = ev.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&r.parser);
    if (!code) *root = r.root;
    return code;
}

bool conf_node_is_null(const struct conf_node *v)
{
    if (v->kind != CONF_NODE_SCALAR || v->quoted) return false;
    return !*v->text || !strcmp(v->text, "null") || !strcmp(v->text, "~");
}

const char *conf_node_show(const struct conf_node *v, char out[64])
{
    if (v->kind == CONF_NODE_MAP) snprintf(out, 64, "a map");
    else if (v->kind == CONF_NODE_LIST) snprintf(out, 64, "a list of %d", v->n);
    else if (conf_node_is_null(v)) snprintf(out, 64, "nothing");
    else snprintf(out, 64, strlen(v->text) > 48 ? "'%.45s...'" : "'%s'", v->text);
    return out;
}
