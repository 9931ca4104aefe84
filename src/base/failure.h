/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one list of errors that mean "the connection is lost": the request may have reached the
 * peer or not, nobody knows what became of it, and it may be asked again on another connection.
 * Every other error is an answer of the peer, or this process's own trouble: asking again does
 * not help.
 */
#ifndef SODA_COMMON_FAILURE_H
#define SODA_COMMON_FAILURE_H

#include <errno.h>
#include <stdbool.h>

/*
 * err: negative errno of a transport's function.
 *
 * -ETIMEDOUT is on the list, because the late answer would be taken for that of the next
 * request.  -EPROTO is, because after bytes that make no sense no later ones can be trusted; a
 * peer answers so, too, and then ends the connection.
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
 * The same of a call on a control connection, where -EPROTO is the peer's answer to a request
 * that it does not understand: asked again it would say the same.  An answer that makes no sense
 * is -ECONNABORTED there.
 */
static inline bool soda_call_lost(int err)
{
	return err != -EPROTO && soda_connection_lost(err);
}

#endif
