/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Publishing an anonymous object: from then on nobody stores to it, and other programs of the user
 * open it by its name (docs/internals/published.md).
 *
 *   anonymous --protected, written back--> sealed --the server has done it--> READ_ONLY | PUBLISHED
 *       ^                                   |   |
 *       +------ refused: stores again ------+   +-- no answer: stays sealed, and the next call
 *                                                   with the same name finds out
 *
 * A sealed object's addresses are PROT_READ, and the server has what was stored there.  One of its
 * chunks that is DIRTY all the same was not stored to: it becomes CLEAN instead of being sent
 * (move/sender.c).  A recovery whose server has lost the object unseals it (pool/recover.c).
 */
#ifndef SODA_HOST_PUBLISH_H
#define SODA_HOST_PUBLISH_H

#include "host_agent/object/region.h"

/*
 * Publish the object under a name of 1 to SODA_WIRE_MAX_NAME bytes.  api_lock held; r is no object
 * of the heap's.  0; -EINVAL: a file's object, or the server does not take the name; -EALREADY: it
 * is published, or may be under another name; -EBUSY: a range of it is in the static cache;
 * -EEXIST: another object has the name; -EIO: a part of its content is lost; -ENOMEM; errors of
 * soda_sync_range(): nothing is published, and stores are allowed again.  -ETIMEDOUT, or -EIO of a
 * DPU agent without an answer: nobody knows; why says so.
 */
int soda_publish_object(struct soda_region *r, const char *name, struct soda_why *why);

#endif
