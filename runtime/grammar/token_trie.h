/* token_trie.h: a vocabulary as a trie over the bytes of its tokens, for match_mask.c.  Built once
 * for a tokenizer, then read-only. */
#ifndef TGC_TOKEN_TRIE_H
#define TGC_TOKEN_TRIE_H

#include "grammar.h"

enum { TOK_PLAIN = 16 };

/* Nodes in order of a depth-first walk; the root is not among them.  A walk reads them one after
 * the other, so they are small. */
typedef struct TrieNode {
        int end;     /* the first node that is not below this one */
        int tokens;  /* its first in `order`; the next node's is their end */
        short depth; /* bytes, from 1 */
        unsigned char byte;
        /* Where all that stands below is whole plain characters, the most that a token has there,
         * if not above TOK_PLAIN; else NOT_PLAIN */
        signed char plain;
        /* Where the bytes up to here are whole plain characters: the most that a plain token has
         * from here on; else, or where there is none, NOT_PLAIN */
        signed char most;
} TrieNode;
enum { NOT_PLAIN = -1 };

/* Plain characters: UTF-8 (RFC 3629) from U+0020 on, without " and \.  Their bytes by ranges. */
enum { N_PLAIN_FORMS = 11 };
extern const struct PlainForm {
        int n;
        unsigned char lo[4], hi[4];
} plain_form[N_PLAIN_FORMS];

/* Most tokens are plain: whole plain characters, at most TOK_PLAIN of them.  Where a grammar takes
 * any plain character, as within JSON's strings, they are taken by ranges and masks, and only the
 * rest of the tokens is walked, in a trie of its own. */
struct TokenTrie {
        TrieNode *node; /* (n_node + 1) */
        int *whole_at;  /* (n_node + 1): the first in `whole` of the plain tokens at and below it */
        int *rest_at;   /* (n_node + 1): the first node of `rest` at or behind it */
        int n_node, vocab, deepest;
        int *order;     /* tokens by their bytes */
        TrieNode *rest; /* (n_rest + 1): nodes at or above tokens that are not plain */
        int n_rest;
        int *rest_node;    /* (n_rest): of a node of `rest`, its number in `node` */
        int *rest_order;   /* those tokens */
        int *whole, most;  /* the others, and the most characters that one has */
        int *many, n_many; /* nodes with many plain tokens, ascending; */
        uint32_t *mask;    /* (n_many + 1, words): those tokens, and all of them */
        char *bytes;
        size_t *at; /* (vocab + 1): of each token, in bytes */
        int eos[TOK_MAX_EOS], n_eos;
};

/* The plain tokens at and below node i, -1: all of them. */
void token_trie_plain(const TokenTrie *t, int i, uint32_t *bits);

#endif
