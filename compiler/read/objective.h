/* objective.h: an objective from a Lua file: the part that knows no graph. */
#ifndef TGC_OBJECTIVE_H
#define TGC_OBJECTIVE_H

#include <stdbool.h>
#include <stddef.h>

enum { OBJECTIVE_FEEDS = 16, OBJECTIVE_MOST = 64 };

typedef enum { OBJECTIVE_PLAIN, OBJECTIVE_PAIRS, OBJECTIVE_PROMPTS } ObjectiveData;

typedef struct ObjectiveFacts {
        ObjectiveData data;
        bool completion; /* of prompts: the record's own completion counts, not what is sampled */
        const char *feed[OBJECTIVE_FEEDS]; /* inputs objective.NAME */
        int n_feeds;
        bool reward, group; /* it has these functions */
        /* of prompts: continuations of each, and how they are sampled; steps that learn from them;
         * steps of which the first samples */
        int samples, max_tokens, updates, every;
        double temp, top_p;
} ObjectiveFacts;

bool objective_feeds(const ObjectiveFacts *f, const char *name);

typedef struct Objective Objective;
/* For what it says of samples; error_code on mistakes. */
struct ReadOptions;
Objective *objective_open(const char *spec, const struct ReadOptions *o);
void objective_close(Objective *x); /* NULL is fine */
const ObjectiveFacts *objective_facts(const Objective *x);

/* The function `embed` of Lua: *v (n,width) is Lua's to free.  Not 0: why says it. */
typedef int ObjectiveEmbed(void *user, const char *const *text, const size_t *bytes, int n,
                           float **v, int *width, char *why, size_t cap);
void objective_embedder(Objective *x, ObjectiveEmbed *embed, void *user);

/* A prompt with its continuations. */
typedef struct ObjectiveGroup {
        const char *prompt, *completion; /* completion: NULL if there is none */
        size_t n_prompt, n_completion;
        int n;
        const char *text[OBJECTIVE_MOST];
        size_t n_text[OBJECTIVE_MOST];
        const int *ids[OBJECTIVE_MOST]; /* what ended it included */
        int tokens[OBJECTIVE_MOST];
        bool ended[OBJECTIVE_MOST]; /* by a token that ends texts */
} ObjectiveGroup;

typedef struct ObjectiveValues {
        bool has[OBJECTIVE_FEEDS]; /* `group` gave this feed */
        double value[OBJECTIVE_FEEDS][OBJECTIVE_MOST];
        bool has_score;
        double score; /* for people: the mean reward, or what `group` calls score */
} ObjectiveValues;
/* Not 0: an error code, and *why says it. */
int objective_judge(Objective *x, const ObjectiveGroup *in, ObjectiveValues *out, const char **why);
const char *objective_said(const Objective *x, size_t *n); /* what it printed in that call */

#endif
