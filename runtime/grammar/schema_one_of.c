/* schema_one_of.c: oneOf is taken as anyOf where no value satisfies two of its schemas. */
#include <string.h>
#include "schema.h"

static bool disjoint(Schema *s, const cJSON *x, const cJSON *y, int depth);

static bool requires(const cJSON *x, const char *name)
{
        const cJSON *k = member(x, "required");
        for (const cJSON *c = cJSON_IsArray(k) ? k->child : NULL; c; c = c->next)
                if (cJSON_IsString(c) && !strcmp(c->valuestring, name))
                        return true;
        return false;
}

/* Each lists its values, and none is in both. */
static bool values_apart(const cJSON *x, const cJSON *y)
{
        const cJSON *x_list = member(x, "enum"), *x_one = member(x, "const"),
                    *y_list = member(y, "enum"), *y_one = member(y, "const");
        if (!(x_list || x_one) || !(y_list || y_one))
                return false;
        for (const cJSON *c = x_one ? x_one : x_list->child; c; c = x_one ? NULL : c->next)
                if (y_one ? cJSON_Compare(c, y_one, true) : in_list_of(y_list, c))
                        return false;
        return true;
}

/* Both need a property, and its two schemas are disjoint. */
static bool property_apart(Schema *s, const cJSON *p, const cJSON *q, int depth)
{
        const cJSON *props = member(p, "properties");
        for (const cJSON *c = props ? props->child : NULL; c; c = c->next) {
                const cJSON *d = member(member(q, "properties"), c->string);
                if (d && requires(p, c->string) && requires(q, c->string) &&
                    disjoint(s, c, d, depth + 1))
                        return true;
        }
        return false;
}

/* p needs a property that q does not allow. */
static bool needs_refused(const cJSON *p, const cJSON *q)
{
        const cJSON *need = member(p, "required");
        if (!cJSON_IsFalse(member(q, "additionalProperties")) || member(q, "patternProperties"))
                return false;
        for (const cJSON *c = cJSON_IsArray(need) ? need->child : NULL; c; c = c->next)
                if (cJSON_IsString(c) && !member(member(q, "properties"), c->valuestring))
                        return true;
        return false;
}

/* No value satisfies both, as far as is seen. */
static bool disjoint(Schema *s, const cJSON *x, const cJSON *y, int depth)
{
        for (const cJSON *k; (k = member(x, "$ref")) && depth < 20; depth++)
                if (!(x = schema_resolve(s, k)))
                        return false;
        for (const cJSON *k; (k = member(y, "$ref")) && depth < 20; depth++)
                if (!(y = schema_resolve(s, k)))
                        return false;
        if (!cJSON_IsObject(x) || !cJSON_IsObject(y) || depth > 12)
                return cJSON_IsFalse(x) || cJSON_IsFalse(y);
        All a = { &x, (char[]) { 0 }, 1, 1 }, b = { &y, (char[]) { 0 }, 1, 1 };
        int both = all_types(s, &a) & all_types(s, &b);
        if (!both || values_apart(x, y))
                return true;
        double lo[2], hi[2];
        bool open[4];
        if (!(both & ~(T_INT | T_NUMBER)) &&
            number_bounds(s, &a, &lo[0], &hi[0], &open[0], &open[1]) &&
            number_bounds(s, &b, &lo[1], &hi[1], &open[2], &open[3]))
                return hi[0] < lo[1] || hi[1] < lo[0] || (hi[0] == lo[1] && (open[1] || open[2])) ||
                       (hi[1] == lo[0] && (open[3] || open[0]));
        const cJSON *all_of = member(x, "allOf");
        for (const cJSON *c = all_of ? all_of->child : NULL; c; c = c->next)
                if (disjoint(s, c, y, depth + 1))
                        return true;
        return both == T_OBJECT && (property_apart(s, x, y, depth) || needs_refused(x, y) ||
                                    property_apart(s, y, x, depth) || needs_refused(y, x));
}

void check_one_of(Schema *s, const cJSON *list)
{
        for (const cJSON *x = list->child; x && !s->b.code; x = x->next)
                for (const cJSON *y = x->next; y && !s->b.code; y = y->next)
                        if (!disjoint(s, x, y, 0))
                                schema_refuse(
                                        s, list,
                                        "keyword oneOf: two of its schemas may hold at once, and "
                                        "that is not excluded; anyOf, or a property with const "
                                        "values in each, is supported");
}
