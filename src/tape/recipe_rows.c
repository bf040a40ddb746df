/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of recipes.def, and what is printed of them. */
#include <math.h>

#include "tape/recipe.h"

const char recipe_bar_words[] =
#define RECIPE(id, name, ...) "|" name
#define USE(...)
#define END
#include "tape/recipes.def"
    ;

const char recipe_texts[] =
#define RECIPE(id, name, dtype, text, ...) name ": " text "; "
#define USE(...)
#define END
#include "tape/recipes.def"
    "embeddings, head and routers stay in bf16";

/* clang-format off */
static const struct recipe_row rows[RECIPE_N] = {
#define RECIPE(id, name_, dtype_, text_, ...)                                                                          \
    [RECIPE_##id] = {.name = name_, .dtype = DT_##dtype_, .text = text_, __VA_ARGS__, .use = {
#define USE(direction, operand, format_, scaling_, rows_, cols_, ...)                                                  \
    [KERNEL_##direction][OPERAND_##operand] = {.on = true, .format = FORMAT_##format_, .scaling = SCALING_##scaling_,  \
                                               .rows = rows_, .cols = cols_, __VA_ARGS__},
#define END }},
#include "tape/recipes.def"
};
/* clang-format on */

const struct recipe_row *recipe_row(enum recipe r)
{
    CHECK((int)r >= 0 && r < RECIPE_N, "no recipe %d", (int)r);
    return &rows[r];
}

const char *recipe_operand_name(enum recipe_operand o)
{
    static const char *const names[RECIPE_OPERANDS] = {"x", "w", "dy"};
    return names[o];
}

bool recipe_leaves_layer(enum recipe r, int layer, int n_layers)
{
    const struct recipe_row *row = recipe_row(r);
    int last = row->last_layers, share = (int)ceil(row->last_share * n_layers - 1e-9);
    if (share > last) last = share;
    return layer < row->first_layers || layer >= n_layers - last;
}

static void print_use(const struct recipe_use *u, struct str *out)
{
    const struct format_info f = format_info(u->format);
    str_puts(out, f.name);
    if (u->rows) str_printf(out, " %d×%d", u->rows, u->cols);
    if (u->rotate) str_puts(out, " rotated");
    if (u->chance) str_puts(out, " by chance");
}

void recipe_print_table(struct str *out)
{
    static const struct {
        enum kernel_phase phase;
        enum recipe_operand a, b;
    } column[] = {{KERNEL_FWD, OPERAND_X, OPERAND_W},
                  {KERNEL_BWD_IN, OPERAND_DY, OPERAND_W},
                  {KERNEL_BWD_W, OPERAND_DY, OPERAND_X}};
    str_puts(out, "| recipe | forward: x, w | backward: dy, w | weights: dy, x |\n|---|---|---|---|\n");
    for (int r = 0; r < RECIPE_N; r++) {
        if (!recipe_quantises((enum recipe)r)) continue;
        str_printf(out, "| `%s` |", rows[r].name);
        for (size_t k = 0; k < sizeof column / sizeof *column; k++) {
            str_putc(out, ' ');
            print_use(&rows[r].use[column[k].phase][column[k].a], out);
            str_puts(out, ", ");
            print_use(&rows[r].use[column[k].phase][column[k].b], out);
            str_puts(out, " |");
        }
        str_putc(out, '\n');
    }
}
