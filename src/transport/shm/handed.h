/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages put into a client's address space through the userfaultfd that it handed
 * over.  What a client hands over can harm nobody but itself: the ioctls act on the
 * memory of whoever made the descriptor.
 */
#ifndef SODA_SHM_HANDED_H
#define SODA_SHM_HANDED_H

#include <stdbool.h>
#include <stdint.h>

/* Whether it is a userfaultfd that has shaken hands with the kernel. */
bool soda_handed_is_uffd(int fd);

/*
 * Copy `bytes` (whole pages) from src to addr there, write-protected or not.  Pages
 * that are there already are left as they are.  0: all of them are there; -ENOENT,
 * -ESRCH, -ENOMEM, -EAGAIN (the client's memory does not hold still)...: some or none.
 */
int soda_handed_install(int fd, uint64_t addr, const void *src, uint32_t bytes, bool protect);

#endif
