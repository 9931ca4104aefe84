/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one list of errors that mean "the connection is lost": it is not known whether the request
 * has reached the peer, and the caller may make it again on another connection. Every other error
 * is an answer of the peer, or a failure in this process, and repeating the request does not help.
 */
#ifndef SODA_BASE_FAILURE_H
#define SODA_BASE_FAILURE_H

#include <errno.h>
#include <stdbool.h>

/*
 * err: negative errno of a transport's function.
 *
 * -ETIMEDOUT is on the list, because a late answer would be taken for that of the next request.
 * -EPROTO is, because after bytes that make no sense no later bytes can be trusted; a peer also
 * answers with -EPROTO before it ends the connection.
 */
static inline bool soda_connection_lost(int err)
{
	switch (-err) {
	case ENOTCONN:
	case ECONNRESET:
	case ECONNABORTED: /* this side ended it */
	case EPIPE:
	case ETIMEDOUT:
	case EPROTO:
	case ENETDOWN:
	case ENETUNREACH:
	case EHOSTDOWN:
	case EHOSTUNREACH:
		return true;
	default:
		return false;
	}
}

/*
 * The same for a call on a control connection, where -EPROTO is the peer's answer to a request
 * that it does not understand, and would answer again.  An answer that makes no sense to the caller
 * is -ECONNABORTED there.
 */
static inline bool soda_call_lost(int err)
{
	return err != -EPROTO && soda_connection_lost(err);
}

/*
 * Whether a server has said no, by this error of its answer: another attempt may be answered in the
 * same way.
 */
static inline bool soda_is_refusal(int err)
{
	switch (-err) {
	case ESTALE:
	case EPERM:
	case EACCES:
	case EBUSY:
	case EINVAL:
	case ENOTSUP:
	case EPROTONOSUPPORT:
		return true;
	default:
		return false;
	}
}

#endif
