/* token_trie.h: the trie as match.c walks it. */
#ifndef TGC_TOKEN_TRIE_H
#define TGC_TOKEN_TRIE_H

#include "grammar.h"

/* Nodes in order of a depth-first walk; the root is not among them. */
typedef struct TrieNode {
        int end;    /* the first node that is not below this one */
        int tokens; /* its first in `order`; the next node's is their end */
        int depth;  /* bytes, from 1 */
        unsigned char byte;
        /* Where all that stands below is whole plain characters, the most that a token has there; else
         * NOT_PLAIN */
        short plain;
} TrieNode;
enum { NOT_PLAIN = -1 };

/* Plain characters: UTF-8 (RFC 3629) from U+0020 on, without " and \.  Their bytes by ranges. */
enum { N_PLAIN_FORMS = 11 };
extern const struct PlainForm {
        int n;
        unsigned char lo[4], hi[4];
} plain_form[N_PLAIN_FORMS];

struct TokenTrie {
        TrieNode *node; /* (n_node + 1) */
        int n_node, vocab, deepest;
        int *order; /* tokens by their bytes */
        char *bytes;
        size_t *at; /* (vocab + 1): of each token, in bytes */
        int eos[TOK_MAX_EOS], n_eos;
};

#endif
