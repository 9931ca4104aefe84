/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of etcd 3.4's JSON gateway (/v3/...), in which keys and values are base64.  Each asks the
 * endpoint that answered last, and when that does not answer, has no leader, or answers as etcd
 * never does (a proxy before it), the next one, once around.  A user's token that etcd takes no
 * more, for its users have changed, say, is replaced once a call.  One thread at a time.
 *
 * All return 0; -EIO (no endpoint answers, each for at most SODA_REGISTRY_CALL_MS), -EACCES (user,
 * password, or what the user may do), -ENOENT (of a lease that has ended), -EPROTO (none is an
 * etcd 3.4, or it refuses for another reason), -ECANCELED (stop), -ENOMEM, with *why, which names
 * etcd.
 */
#ifndef SODA_REGISTRY_ETCD_H
#define SODA_REGISTRY_ETCD_H

#include <stdatomic.h>

#include "registry/registry.h"

enum { SODA_ETCD_LEASE = 24 }; /* a lease's number as text, with its end */

struct soda_etcd;

/*
 * Nothing is asked yet.  Also -ENOTSUP (no libcurl), -EINVAL or an error of opening it (the file of
 * the user).
 */
int soda_etcd_open(const struct soda_registry_name *name, const struct soda_registry_login *login,
		   struct soda_etcd **etcd_p, struct soda_why *why);
void soda_etcd_close(struct soda_etcd *etcd); /* NULL is fine */
/* Any thread: the call under way, and those that follow, are given up at once; false: no more. */
void soda_etcd_stop(struct soda_etcd *etcd, bool stop);

/* A lease that ends after so many seconds without soda_etcd_renew(). */
int soda_etcd_grant(struct soda_etcd *etcd, int seconds, char lease[SODA_ETCD_LEASE],
		    struct soda_why *why);
int soda_etcd_renew(struct soda_etcd *etcd, const char *lease, struct soda_why *why);
/* End it, and with it its keys. */
int soda_etcd_revoke(struct soda_etcd *etcd, const char *lease, struct soda_why *why);
/* A key that goes when the lease ends. */
int soda_etcd_put(struct soda_etcd *etcd, const char *key, const char *value, const char *lease,
		  struct soda_why *why);
/*
 * Call `each` with every value, oldest creation first, of the keys that begin with the prefix; at
 * most SODA_REGISTRY_ASKED. value: not ended.
 */
int soda_etcd_list(struct soda_etcd *etcd, const char *prefix,
		   void (*each)(void *arg, const char *value, size_t bytes), void *arg,
		   struct soda_why *why);

/*
 * What soda_registry_resolve() asks (resolve.c); keep: as soda_registry_choose().
 */
int soda_registry_ask(struct soda_etcd *etcd, const struct soda_registry_name *name, bool leaving,
		      const struct soda_members *keep, struct soda_members *members_p,
		      struct soda_why *why);

/*
 * Call `look` once etcd tells of changes of the keys that begin with the prefix, and then after
 * each; for at most timeout_ms, when 0 is returned.  Other errors: it does not tell any more.
 */
int soda_etcd_watch(struct soda_etcd *etcd, const char *prefix, int timeout_ms,
		    void (*look)(void *arg), void *arg, struct soda_why *why);

/* Of keys and values: RFC 4648, section 4, with padding (base64.c). */

/* A string for the caller to free; NULL: no memory. */
char *soda_base64_encode(const void *data, size_t bytes);
/* What the text says, for the caller to free, ended by a 0 beyond *bytes_p; NULL: it is none. */
char *soda_base64_decode(const char *text, size_t *bytes_p);

#endif
