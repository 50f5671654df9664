/* chat.h: conversations, as `tgc run --messages`, `tgc tokenize --messages` and `tgc chat` share
 * them. */
#ifndef TGC_CLI_CHAT_H
#define TGC_CLI_CHAT_H

#include "../../runtime/chat/chat.h"
#include "../run/prompts.h"
#include "../run/sampling.h"
#include "../load/open.h"

/* ---- chat_ask.c: a conversation to text and ids ---- */

typedef struct Chat {
        ChatSource source;
        ChatTemplate *plain, *with_tools; /* NULL: the same as plain */
        const char *of;                   /* the model, for messages */
        char *vars;                       /* --chat-template-kwargs, checked; or NULL */
        bool warned;                      /* of two BOS */
        int64_t now;                      /* strftime_now's, seconds since 1970; 0: the clock's */
} Chat;

/* The template of --template, else of a section `chat` (NULL: there is none).  There being no
 * template is an error.  chat_close also after a failure. */
int chat_open(Chat *c, const Args *a, const Section *s, const char *of, Err *e);
/* The same of a folder or a .gguf. */
int chat_open_file(Chat *c, const Args *a, const char *path, ModelKind kind, Err *e);
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

/* ---- chat_model.c: a model that answers ---- */

typedef struct ChatModel {
        const Args *a;
        Args own; /* a, with this model as its first argument */
        const char *name;
        Loaded l;
        Session *s;
        Chat chat;
        SamplingOptions how;
        int ctx, vocab, end_of_turn;
        int *ids, n; /* in the cache, the last one pending */
        int cap;
        /* of the last answer */
        GrammarUse grammar;
        GrammarText text;    /* its place in the grammar */
        char *answer;        /* its text, a NUL behind it */
        int *said, cap_said; /* its tokens (n_said) */
        size_t n_answer, cap_answer;
        const char *stop; /* eos, stop, signal, context, length */
        int shifts;       /* how often --context-shift made room */
        int n_prompt, n_kept, n_said;
        double prompt_s, answer_s;
        /* of all of them */
        double all_prompt_s, all_answer_s;
        int all_prompt, all_said;
} ChatModel;

int chat_model_open(ChatModel *m, const Args *a, int which, uint64_t seed, Err *e);
void chat_model_close(ChatModel *m);
/* Answers a JSON list of messages: text goes to put (may be NULL) as it is made, whole characters
 * at a time.  Ctrl-C ends the answer, not the session. */
typedef void ChatPut(void *to, const char *text, size_t n);
int chat_answer(ChatModel *m, const char *messages, size_t n, ChatPut *put, void *to, Err *e);

/* ---- chat_lines.c: what a person types ---- */

typedef struct Lines {
        bool tty, editor;
        bool interrupted; /* the line that is read, by Ctrl-C */
} Lines;

void lines_open(Lines *l);
void lines_close(Lines *l);
/* A message: a line, or several (""" around them, or a \ at the end of each but the last). 
 * malloc'ed; NULL at the end of the input. */
char *lines_read(Lines *l, const char *prompt);

/* ---- line_editor.c: of the terminal ---- */

bool editor_open(void); /* false: there is none */
void editor_close(void);
/* A line without its newline, malloc'ed; NULL: the end, or Ctrl-C. */
char *editor_line(const char *prompt, bool *interrupted);
void editor_remember(const char *line); /* in the history and its file */

/* ---- chat_columns.c ---- */

/* Two texts side by side on a terminal of `width` columns. */
void put_columns(const char *const title[2], const char *const text[2], int width);
/* Of the terminal on standard output; 0: there is none. */
int terminal_width(void);

#endif
