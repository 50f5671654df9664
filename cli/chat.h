/* chat.h: conversations: what `tgc run --messages`, `tgc tokenize --messages` and `tgc chat` share. */
#ifndef TGC_CLI_CHAT_H
#define TGC_CLI_CHAT_H

#include "../runtime/chat/chat.h"
#include "prompts.h"
#include "work.h"

/* ---- chat_ask.c: a conversation to text and ids ---- */

typedef struct Chat {
        ChatSource source;
        ChatTemplate *plain, *with_tools; /* NULL: the same as plain */
        const char *of;                   /* the model, for messages */
        char *vars;                       /* --chat-template-kwargs, checked; or NULL */
        bool warned;                      /* of two BOS */
} Chat;

/* The template of --template, else of a section `chat` (s, or NULL) or of a tokenizer's folder (dir,
 * or NULL).  There being none is an error.  chat_close also after a failure. */
int chat_open(Chat *c, const Args *a, const Section *s, const char *dir, const char *of, Err *e);
void chat_close(Chat *c);

/* answer: the text ends where the model's answer begins. */
int chat_text(const Chat *c, Json conversation, bool answer, ChatRendered *r, Err *e);
/* The same as ids, *ids malloc'ed: special tokens are parsed, no BOS is put in front. */
int chat_ids(Chat *c, const Args *a, Json conversation, const Tokenizer *tok, int vocab, int **ids,
             int *n, Err *e);
/* The special token that the template puts behind an answer; -1: none. */
int chat_end_of_turn(const Chat *c, const Tokenizer *tok);

/* --messages FILE, with --system in front: *text is malloc'ed JSON that json_open takes. */
int messages_read(const Args *a, char **text, size_t *n, Err *e);
/* The prompt of `run --messages`, and what ends its answer (chat_end_of_turn). */
int messages_prompt(const Args *a, const Plan *p, const Tokenizer *tok, int vocab, Prompts *out,
                    int *end_of_turn, Err *e);

#endif
