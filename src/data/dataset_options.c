/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_options.c: which options a dataset can have together; what cannot be is refused before anything is opened. */
#include "base/mem.h"
#include "data/dataset_impl.h"

/* Texts with pictures: whole documents, of conversations or captions. */
static int check_pictures(const struct dataset_options *o, struct err *e)
{
    if (o->pack == PACK_JOINED || o->parts > 1 || o->fim.rate > 0 || o->pairs || o->classes)
        return err_set(e, ERR_REQUEST,
                       "texts with pictures are whole documents: choose data.pack: best_fit or padded, and none of "
                       "data.parts, data.fim and records of preferences");
    for (int i = 0; i < o->n_sources; i++)
        if (remote_is(o->sources[i].path)) {
            char *path = remote_hidden(o->sources[i].path);
            err_set(e, ERR_REQUEST, "%s: texts with pictures are read from files; copy it", path);
            xfree(path);
            return ERR_REQUEST;
        }
    return OK;
}

static int check_images(const struct dataset_options *o, struct err *e)
{
    if (o->images.view.size < 1) return OK;
    if (o->images.view.channels != 1 && o->images.view.channels != VIEW_CHANNELS)
        return err_set(e, ERR_REQUEST, "pictures of %d channels (model.channels); files hold 1 or 3",
                       o->images.view.channels);
    if (o->pictures.patches) return check_pictures(o, e);
    if (o->pack != PACK_JOINED || o->group || o->parts > 1 || o->fim.rate > 0)
        return err_set(e, ERR_REQUEST, "samples are pictures, and %s; leave it out",
                       o->fim.rate > 0 ? "data.fim rearranges texts"
                                       : "data.pack, data.group and data.parts are of texts");
    return OK;
}

int dataset_check(const struct dataset_options *o, struct err *e)
{
    int code = check_images(o, e);
    if (code) return code;
    if (o->held.share > 0 && o->images.view.size)
        return err_set(e, ERR_REQUEST, "a share of pictures is not held out; name shards that are not trained on");
    if (o->n_sources < 1) return err_set(e, ERR_REQUEST, "no data: name at least one text, folder or token file");
    if (o->seq_len < 1)
        return err_set(e, ERR_REQUEST, "a sequence length of %lld; at least 1 is needed", (long long)o->seq_len);
    if (o->parts < 0 || (o->parts && o->seq_len % o->parts))
        return err_set(e, ERR_REQUEST, "samples of %lld tokens in %lld parts; choose a divisor", (long long)o->seq_len,
                       (long long)o->parts);
    if (o->parts > 1 && o->group)
        return err_set(e, ERR_REQUEST,
                       "the samples of a group are of one source, those of %lld parts of several; "
                       "choose one of both",
                       (long long)o->parts);
    if (o->group && o->pack == PACK_JOINED)
        return err_set(e, ERR_REQUEST,
                       "samples of joined documents are all of one length, so that there is nothing to group; pack "
                       "documents (best_fit or padded), or do without groups");
    if (o->group < 0 || (o->group && o->global_batch % o->group))
        return err_set(e, ERR_REQUEST, "groups of %lld samples in batches of %lld; choose a divisor",
                       (long long)o->group, (long long)o->global_batch);
    if (o->classes && (o->pack != PACK_PADDED || o->parts > 1 || o->fim.rate > 0))
        return err_set(e, ERR_REQUEST,
                       "a sample of a class is one document: choose data.pack: padded, and neither data.parts "
                       "nor data.fim");
    if (o->mlm.rate > 0 && o->fim.rate > 0)
        return err_set(e, ERR_REQUEST, "data.fim moves what data.mlm hides in its place; choose one of both");
    if (o->pairs && (o->pack != PACK_PADDED || o->group || o->parts > 1))
        return err_set(e, ERR_REQUEST,
                       "a sequence of a pair is one document: choose data.pack: padded, and neither "
                       "data.group nor data.parts");
    if (o->pairs && o->global_batch % 2)
        return err_set(e, ERR_REQUEST, "batches of %lld sequences, and a pair is two", (long long)o->global_batch);
    for (int i = 0; i < o->n_sources; i++)
        if (o->pairs && (!o->sources[i].chat || o->sources[i].skip_bad))
            return err_set(e, ERR_REQUEST,
                           o->sources[i].chat ? "%s: bad records of preferences are errors (data.skip_bad)"
                                              : "%s: records of preferences are written by a template; name one (chat)",
                           o->sources[i].path);
    for (int i = 0; i < o->n_sources; i++)
        if (!o->sources[i].target != !o->sides.encoder)
            return err_set(e, ERR_REQUEST,
                           o->sides.encoder ? "%s: is one text, and other sources are pairs of texts; name the member "
                                              "that is written (target)"
                                            : "%s: has a target, and this model has no encoder; leave it out",
                           o->sources[i].path);
    for (int i = 0; i < o->n_sources; i++)
        if (!o->sources[i].label != !o->classes)
            return err_set(e, ERR_REQUEST,
                           o->classes
                               ? "%s: has no label, and this model tells classes of texts; name the member "
                                 "of its records that is one (label)"
                               : "%s: has a label, and this model tells no classes (model.classes); leave it out",
                           o->sources[i].path);
    return OK;
}
