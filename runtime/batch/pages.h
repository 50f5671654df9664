/* pages.h: who owns which page of a paged cache, and which pages hold the same beginning.
 *
 * Pages are numbered from 1; page 0 belongs to nobody (session_pages.c).  A page has one owner for
 * each sequence whose table names it.  A full page may be named by its contents: a later sequence
 * with the same beginning then finds it.  It stays findable after its last owner has gone, until
 * its memory is needed.  Nothing here touches a device. */
#ifndef TGC_PAGES_H
#define TGC_PAGES_H

#include <stdbool.h>
#include "../util/err.h"

typedef struct Pages Pages;

/* n: pages of the pool, page 0 included; each: tokens of a page. */
int pages_new(Pages **p, int n, int each, Err *e);
void pages_delete(Pages *p); /* NULL is fine */

int pages_free_count(const Pages *p); /* without an owner: they can be taken */
int pages_owners(const Pages *p, int page);
unsigned pages_generation(const Pages *p, int page); /* times it was taken */

/* A page with one owner; 0: all have some.  What was free longest goes first, and pages that nobody
 * can find before those that somebody may. */
int pages_take(Pages *p);
void pages_share(Pages *p, int page); /* one more owner */
void pages_drop(Pages *p, int page);  /* one less */

/* The page that holds tokens ids[0..each) and follows page `before` (0: it is a sequence's first),
 * as pages_name said, or 0.  It has no new owner yet.  `before` must have one. */
int pages_find(const Pages *p, int before, const int *ids);
/* `page` holds these.  Nothing happens where another page is known to hold the same. */
void pages_name(Pages *p, int page, int before, const int *ids);

/* Every page is either free or owned and the lists hold together: for tests. */
bool pages_sound(const Pages *p);

#endif
