/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libssl, loaded by name as libcrypto is in crypto.c, for the same reasons.
 *
 * Sockets are read and written by a BIO of our own: OpenSSL's would raise SIGPIPE in a program that
 * is not ours, and needs a socket that does not block.  It also says what SSL_get_error() would,
 * which looks at the thread's queue of errors, where the program may have left some of its own; we
 * leave none there.
 */
#include "trust/tls.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>	    /* INT_MAX, for OpenSSL */
#include <linux/limits.h>   /* PATH_MAX */
#define INT_MAX __INT_MAX__ /* err.h wants it, and <limits.h> may be base/limits.h here */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/run.h"
#include "trust/identity.h"
#include "trust/proof.h"
#include "trust/tls_kernel.h"

#define TEXT(x) #x
#define NAME(version) "libssl.so." TEXT(version)
#define LIBRARY NAME(OPENSSL_SHLIB_VERSION)

#define FUNCTIONS(X)                                                                               \
	X(OPENSSL_init_ssl)                                                                        \
	X(TLS_server_method)                                                                       \
	X(TLS_client_method)                                                                       \
	X(SSL_CTX_new)                                                                             \
	X(SSL_CTX_free)                                                                            \
	X(SSL_CTX_ctrl)                                                                            \
	X(SSL_CTX_set_options)                                                                     \
	X(SSL_CTX_set_ciphersuites)                                                                \
	X(SSL_CTX_set_num_tickets)                                                                 \
	X(SSL_CTX_set_verify)                                                                      \
	X(SSL_CTX_set_default_passwd_cb)                                                           \
	X(SSL_CTX_use_certificate_chain_file)                                                      \
	X(SSL_CTX_use_PrivateKey_file)                                                             \
	X(SSL_CTX_check_private_key)                                                               \
	X(SSL_CTX_load_verify_file)                                                                \
	X(SSL_CTX_set_keylog_callback)                                                             \
	X(SSL_CTX_set_alpn_select_cb)                                                              \
	X(SSL_CTX_set_psk_find_session_callback)                                                   \
	X(SSL_CTX_set_psk_use_session_callback)                                                    \
	X(SSL_new)                                                                                 \
	X(SSL_free)                                                                                \
	X(SSL_set_bio)                                                                             \
	X(SSL_set_ex_data)                                                                         \
	X(SSL_get_ex_data)                                                                         \
	X(SSL_set_ciphersuites)                                                                    \
	X(SSL_set_alpn_protos)                                                                     \
	X(SSL_get0_alpn_selected)                                                                  \
	X(SSL_get_current_cipher)                                                                  \
	X(SSL_CIPHER_get_protocol_id)                                                              \
	X(SSL_set_accept_state)                                                                    \
	X(SSL_set_connect_state)                                                                   \
	X(SSL_do_handshake)                                                                        \
	X(SSL_read_ex)                                                                             \
	X(SSL_write_ex)                                                                            \
	X(SSL_export_keying_material)                                                              \
	X(SSL_get0_param)                                                                          \
	X(SSL_get_verify_result)                                                                   \
	X(SSL_CIPHER_find)                                                                         \
	X(SSL_SESSION_new)                                                                         \
	X(SSL_SESSION_free)                                                                        \
	X(SSL_SESSION_set1_master_key)                                                             \
	X(SSL_SESSION_set_cipher)                                                                  \
	X(SSL_SESSION_set_protocol_version)                                                        \
	X(X509_VERIFY_PARAM_set1_host)                                                             \
	X(X509_VERIFY_PARAM_set1_ip_asc)                                                           \
	X(X509_VERIFY_PARAM_set_hostflags)                                                         \
	X(X509_verify_cert_error_string)                                                           \
	X(BIO_get_new_index)                                                                       \
	X(BIO_meth_new)                                                                            \
	X(BIO_meth_set_write_ex)                                                                   \
	X(BIO_meth_set_read_ex)                                                                    \
	X(BIO_meth_set_ctrl)                                                                       \
	X(BIO_new)                                                                                 \
	X(BIO_set_data)                                                                            \
	X(BIO_get_data)                                                                            \
	X(BIO_set_init)                                                                            \
	X(BIO_set_flags)                                                                           \
	X(BIO_clear_flags)                                                                         \
	X(ERR_set_mark)                                                                            \
	X(ERR_pop_to_mark)                                                                         \
	X(ERR_peek_last_error)                                                                     \
	X(ERR_reason_error_string)

#define POINTER(name) __typeof__(&(name)) p_##name;
static struct {
	FUNCTIONS(POINTER)
	BIO_METHOD *socket;
	bool ready;
} library; /* set by load(), then constant */

#define THE(name) library.p_##name

/* The SHA-256 of both is that of the PSK (RFC 8446, 4.2.11). */
#define SUITES "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
static const uint8_t psk_suite[] = { 0x13, 0x01 };
/* Of what the kernel carries (tls_kernel.h). */
#define DATA_SUITES "TLS_CHACHA20_POLY1305_SHA256"
enum { DATA_SUITE = 0x1303 };
/* The protocol that a data connection asks for (RFC 7301): a server whose kernel has TLS takes it.
 */
static const uint8_t data_protocol[] = "\x09soda-data";
enum { DATA_PROTOCOL_BYTES = sizeof(data_protocol) - 1 };

#define PSK "SODA TLS 1.3 PSK"
#define CHANNEL "EXPORTER-SODA-channel"
#define ID_PREFIX "soda-" /* then the key's id: who listens on the wire learns no name */
enum { ID_BYTES = sizeof(ID_PREFIX) - 1 + 2 * SODA_WIRE_KEY_ID_BYTES, RECORD_BYTES = 16 << 10 };

struct soda_tls_context {
	pthread_mutex_t lock;
	SSL_CTX *ssl;			/* guarded by lock */
	struct timespec age;		/* of SODA_TLS_ROOTS, as it was last read; likewise */
	const struct soda_guard *guard; /* who listens; NULL: no tenants */
	bool serves;
	char *certificates; /* their directory; NULL: there are none */
	bool kernel;	    /* who listens: data connections may come */
};

struct soda_tls {
	SSL *ssl;
	int fd;
	bool server;
	/* The BIO's, of the last call. */
	bool wants_write;
	int error; /* -EAGAIN, or the socket's */
	bool ended;
	/* Of the handshake. */
	bool heard, plain; /* a byte has come; the first one is not TLS */
	/* It is for data: asked for, as who connects, or granted, as who listens. */
	bool data;
	bool in_kernel;				   /* and the kernel has it */
	uint8_t secrets[2][SODA_TLS_SECRET_BYTES]; /* of data: the client's, the server's */
	bool told[2];				   /* which of them OpenSSL has told */
	const struct soda_guard *guard;
	bool certificates;
	uint8_t psk[SODA_KEY_BYTES];
	char id[ID_BYTES + 1];
	char server_name[SODA_WIRE_TENANT_MAX + 1];
	char no_key[128];	      /* what the guard said */
	uint8_t record[RECORD_BYTES]; /* parts to be sent, together */
};

/* Around each use of the library: its memory is local, and the thread's errors stay the program's.
 */
static void enter(void)
{
	soda_run_local(1);
	THE(ERR_set_mark)();
}

static void leave(void)
{
	THE(ERR_pop_to_mark)();
	soda_run_local(-1);
}

/* The newest error; NULL: it has no words. */
static const char *words(void)
{
	return THE(ERR_reason_error_string)(THE(ERR_peek_last_error)());
}

/* The socket */

static int io_failed(BIO *bio, struct soda_tls *tls, int flag, int err)
{
	tls->error = -err;
	tls->wants_write = flag == BIO_FLAGS_WRITE;
	if (err == EAGAIN)
		THE(BIO_set_flags)(bio, flag | BIO_FLAGS_SHOULD_RETRY);
	return 0;
}

static int io_write(BIO *bio, const char *data, size_t bytes, size_t *done_p)
{
	struct soda_tls *tls = THE(BIO_get_data)(bio);
	ssize_t n;

	THE(BIO_clear_flags)(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
	do {
		n = send(tls->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return io_failed(bio, tls, BIO_FLAGS_WRITE, errno == EPIPE ? ECONNRESET : errno);
	*done_p = (size_t)n;
	return 1;
}

static int io_read(BIO *bio, char *data, size_t bytes, size_t *done_p)
{
	struct soda_tls *tls = THE(BIO_get_data)(bio);
	ssize_t n;

	THE(BIO_clear_flags)(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
	do {
		n = recv(tls->fd, data, bytes, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return io_failed(bio, tls, BIO_FLAGS_READ, errno);
	if (n == 0) {
		tls->ended = true;
		return 0;
	}
	if (!tls->heard) {
		tls->heard = true;
		/* a handshake, or an alert (21) */
		tls->plain = !soda_tls_begins((uint8_t)*data) && *data != 21;
	}
	*done_p = (size_t)n;
	return 1;
}

static long io_control(BIO *bio, int command, long number, void *argument)
{
	return command == BIO_CTRL_FLUSH;
}

/* The library */

static bool find_functions(void *handle)
{
	bool all = true;

#define FIND(name)                                                                                 \
	THE(name) = (__typeof__(&(name)))dlsym(handle, #name);                                     \
	all = all && THE(name);
	FUNCTIONS(FIND)
	return all;
}

static void load(void)
{
	void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!handle || !find_functions(handle))
		return;
	/* at exit other threads of ours may still use it (crypto.c) */
	if (!THE(OPENSSL_init_ssl)(OPENSSL_INIT_NO_ATEXIT, NULL))
		return;
	library.socket =
		THE(BIO_meth_new)(THE(BIO_get_new_index)() | BIO_TYPE_SOURCE_SINK, "SODA socket");
	library.ready = library.socket && THE(BIO_meth_set_write_ex)(library.socket, io_write) &&
			THE(BIO_meth_set_read_ex)(library.socket, io_read) &&
			THE(BIO_meth_set_ctrl)(library.socket, io_control);
}

static int be_ready(struct soda_conf_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	soda_run_local(1);
	pthread_once(&once, load);
	soda_run_local(-1);
	if (library.ready)
		return 0;
	return soda_conf_fail(err, -ENOTSUP,
			      "TLS needs OpenSSL's " LIBRARY ", which is not installed (Debian: "
			      "libssl3)");
}

/* The shared key */

/* PSK and identity of a key of a tenant. The library is entered. NULL: no memory. */
static SSL_SESSION *session_of(SSL *ssl, const uint8_t psk[SODA_KEY_BYTES])
{
	const SSL_CIPHER *suite = THE(SSL_CIPHER_find)(ssl, psk_suite);
	SSL_SESSION *session = THE(SSL_SESSION_new)();

	if (session && suite && THE(SSL_SESSION_set1_master_key)(session, psk, SODA_KEY_BYTES) &&
	    THE(SSL_SESSION_set_cipher)(session, suite) &&
	    THE(SSL_SESSION_set_protocol_version)(session, TLS1_3_VERSION))
		return session;
	if (session)
		THE(SSL_SESSION_free)(session);
	return NULL;
}

static int psk_of(const uint8_t key[SODA_KEY_BYTES], uint8_t psk[SODA_KEY_BYTES])
{
	return soda_hkdf(key, NULL, 0, PSK, sizeof(PSK), psk);
}

/* Who connects is asked for its key. */
static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
		   SSL_SESSION **session)
{
	struct soda_tls *tls = THE(SSL_get_ex_data)(ssl, 0);

	*session = NULL;
	*id = NULL;
	*id_bytes = 0;
	if (tls->certificates)
		return 1;
	*session = session_of(ssl, tls->psk);
	*id = (const unsigned char *)tls->id;
	*id_bytes = ID_BYTES;
	return *session != NULL;
}

static int parse_id(const unsigned char *id, size_t bytes, uint8_t key_id[SODA_WIRE_KEY_ID_BYTES])
{
	char hex[2 * SODA_WIRE_KEY_ID_BYTES + 1] = "";

	if (bytes != ID_BYTES || memcmp(id, ID_PREFIX, strlen(ID_PREFIX)))
		return -EINVAL;
	memcpy(hex, id + strlen(ID_PREFIX), sizeof(hex) - 1);
	return soda_hex_parse(hex, key_id, SODA_WIRE_KEY_ID_BYTES);
}

/* Who listens is asked for the key of this id; without one the handshake goes on, and fails. */
static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
	struct soda_tls *tls = THE(SSL_get_ex_data)(ssl, 0);
	uint8_t key_id[SODA_WIRE_KEY_ID_BYTES], key[SODA_KEY_BYTES];
	void *tenant;

	*session = NULL;
	if (!tls->guard || parse_id(id, id_bytes, key_id))
		return 1;
	if (tls->guard->find(tls->guard->arg, NULL, key_id, key, &tenant, tls->no_key))
		return 1;
	if (!psk_of(key, tls->psk))
		*session = session_of(ssl, tls->psk);
	soda_wipe(key, sizeof(key));
	return *session != NULL;
}

/* Data connections */

/* Who listens is asked what a connection is for. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_bytes,
			   const unsigned char *in, unsigned int in_bytes, void *arg)
{
	struct soda_tls *tls = THE(SSL_get_ex_data)(ssl, 0);

	if (in_bytes != DATA_PROTOCOL_BYTES || memcmp(in, data_protocol, DATA_PROTOCOL_BYTES))
		return SSL_TLSEXT_ERR_NOACK;
	tls->data = true;
	*out = data_protocol + 1;
	*out_bytes = DATA_PROTOCOL_BYTES - 1;
	return SSL_TLSEXT_ERR_OK;
}

/*
 * OpenSSL tells secrets in the lines of a log that debuggers read, and in no other way: a label,
 * the client's random number, and the secret, in hexadecimal digits.
 */
static void take_secret(const SSL *ssl, const char *line)
{
	static const char *const labels[] = { "CLIENT_TRAFFIC_SECRET_0 ",
					      "SERVER_TRAFFIC_SECRET_0 " };
	struct soda_tls *tls = THE(SSL_get_ex_data)(ssl, 0);
	const char *secret;

	for (int i = 0; tls->data && i < 2; i++) {
		secret = strncmp(line, labels[i], strlen(labels[i])) ? NULL : strrchr(line, ' ');
		if (secret)
			tls->told[i] =
				!soda_hex_parse(secret + 1, tls->secrets[i], SODA_TLS_SECRET_BYTES);
	}
}

/* Whether the server has taken what was asked for. */
static bool is_granted(struct soda_tls *tls)
{
	const unsigned char *protocol;
	unsigned int bytes;

	THE(SSL_get0_alpn_selected)(tls->ssl, &protocol, &bytes);
	return bytes == DATA_PROTOCOL_BYTES - 1 && !memcmp(protocol, data_protocol + 1, bytes);
}

/* After the handshake of a data connection. The library is entered. */
static int give_to_kernel(struct soda_tls *tls, char why[SODA_TLS_WHY])
{
	const SSL_CIPHER *suite = THE(SSL_get_current_cipher)(tls->ssl);
	int ret;

	if (!is_granted(tls)) {
		snprintf(why, SODA_TLS_WHY,
			 "the server's kernel has no TLS for data (on its machine, as root: "
			 "modprobe tls)");
		return -EACCES;
	}
	if (!suite || THE(SSL_CIPHER_get_protocol_id)(suite) != DATA_SUITE) {
		snprintf(why, SODA_TLS_WHY, "TLS for data is by " DATA_SUITES " alone");
		return -EPROTO;
	}
	if (!tls->told[0] || !tls->told[1]) { /* never by keys that anybody could guess */
		snprintf(why, SODA_TLS_WHY, "OpenSSL does not tell the keys of TLS for data");
		return -EACCES;
	}
	ret = soda_tls_kernel_take(tls->fd, tls->secrets[tls->server], tls->secrets[!tls->server]);
	if (ret)
		snprintf(why, SODA_TLS_WHY, "the kernel does not take over TLS: %s",
			 soda_strerror(ret));
	tls->in_kernel = ret == 0;
	return ret ? -EACCES : 0;
}

bool soda_tls_in_kernel(const struct soda_tls *tls)
{
	return tls->in_kernel;
}

/* Contexts */

static int no_password(char *buf, int size, int writing, void *arg)
{
	return 0; /* nobody is asked on a terminal */
}

/* The library is entered, also below. */
static struct soda_tls_context *new_context(const SSL_METHOD *method, struct soda_conf_error *err)
{
	struct soda_tls_context *c = calloc(1, sizeof(*c));

	if (c) {
		pthread_mutex_init(&c->lock, NULL);
		c->ssl = THE(SSL_CTX_new)(method);
	}
	if (c && c->ssl &&
	    THE(SSL_CTX_ctrl)(c->ssl, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) &&
	    THE(SSL_CTX_ctrl)(c->ssl, SSL_CTRL_SET_MAX_PROTO_VERSION, 0, NULL) &&
	    THE(SSL_CTX_set_ciphersuites)(c->ssl, SUITES)) {
		THE(SSL_CTX_ctrl)
		(c->ssl, SSL_CTRL_MODE,
		 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
		THE(SSL_CTX_ctrl)(c->ssl, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
		THE(SSL_CTX_set_num_tickets)(c->ssl, 0); /* each connection has a full handshake */
		THE(SSL_CTX_set_options)(c->ssl, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
		THE(SSL_CTX_set_default_passwd_cb)(c->ssl, no_password);
		return c;
	}
	soda_conf_fail(err, -EIO, "OpenSSL cannot be used for TLS 1.3: %s", words() ?: "no reason");
	if (c && c->ssl)
		THE(SSL_CTX_free)(c->ssl);
	free(c);
	return NULL;
}

/* A file of the directory. 0, -ENAMETOOLONG. */
static int path_in(const char *dir, const char *name, char out[PATH_MAX],
		   struct soda_conf_error *err)
{
	if (snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX)
		return 0;
	return soda_conf_fail(err, -ENAMETOOLONG, "%.180s: the name is too long", dir);
}

static int bad_file(const char *path, const char *what, struct soda_conf_error *err)
{
	int r = access(path, R_OK) ? -errno : -EINVAL;
	const char *reason = words();

	return soda_conf_fail(err, r, "%.120s: %s%.80s", path, r == -EINVAL ? what : "",
			      r != -EINVAL ? soda_strerror(r)
			      : reason	   ? reason
					   : "");
}

static int load_chain(SSL_CTX *ssl, const char *dir, struct soda_conf_error *err)
{
	char path[PATH_MAX], by_fd[64];
	struct stat st;
	int r = path_in(dir, SODA_TLS_CHAIN, path, err), fd;

	if (r)
		return r;
	if (THE(SSL_CTX_use_certificate_chain_file)(ssl, path) != 1)
		return bad_file(path, "no certificate in PEM: ", err);
	r = path_in(dir, SODA_TLS_KEY, path, err);
	fd = r ? r : soda_private_open(path, &st, err);
	if (fd < 0)
		return fd;
	snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd);
	if (THE(SSL_CTX_use_PrivateKey_file)(ssl, by_fd, SSL_FILETYPE_PEM) != 1 ||
	    THE(SSL_CTX_check_private_key)(ssl) != 1)
		r = bad_file(
			path,
			"not the key of " SODA_TLS_CHAIN ", in PEM and without a password: ", err);
	close(fd);
	return r;
}

static int load_roots(SSL_CTX *ssl, const char *dir, struct soda_conf_error *err)
{
	char path[PATH_MAX];
	int r = path_in(dir, SODA_TLS_ROOTS, path, err);

	if (!r && THE(SSL_CTX_load_verify_file)(ssl, path) != 1)
		r = bad_file(path, "no certificates in PEM: ", err);
	return r;
}

/* When the roots were written; zeros: they are not there. */
static struct timespec age_of_roots(const char *dir)
{
	struct soda_conf_error ignored;
	char path[PATH_MAX];
	struct stat st;

	if (path_in(dir, SODA_TLS_ROOTS, path, &ignored) || stat(path, &st))
		return (struct timespec){ 0 };
	return st.st_mtim;
}

static int make_context(bool serves, const char *certificates, struct soda_tls_context **context_p,
			struct soda_conf_error *err)
{
	struct timespec age =
		certificates && !serves ? age_of_roots(certificates) : (struct timespec){ 0 };
	struct soda_tls_context *c;
	char none[SODA_TLS_WHY];
	int r = 0;

	enter();
	c = new_context(serves ? THE(TLS_server_method)() : THE(TLS_client_method)(), err);
	if (!c)
		r = -EIO;
	else if (certificates)
		r = serves ? load_chain(c->ssl, certificates, err)
			   : load_roots(c->ssl, certificates, err);
	if (c && !r && certificates && !(c->certificates = strdup(certificates)))
		r = soda_conf_fail(err, -ENOMEM, "out of memory");
	if (c && !r) {
		c->serves = serves;
		c->age = age;
		c->kernel = serves && soda_tls_kernel(none) == 0;
		if (c->kernel)
			THE(SSL_CTX_set_alpn_select_cb)(c->ssl, choose_protocol, NULL);
		THE(SSL_CTX_set_keylog_callback)(c->ssl, take_secret);
		if (serves)
			THE(SSL_CTX_set_psk_find_session_callback)(c->ssl, find_key);
		else
			THE(SSL_CTX_set_psk_use_session_callback)(c->ssl, use_key);
		/* also where a key is shared: a certificate instead of it is nothing then */
		THE(SSL_CTX_set_verify)
		(c->ssl, serves ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
	}
	leave();
	if (r && c)
		soda_tls_context_free(c);
	else if (!r)
		*context_p = c;
	return r;
}

int soda_tls_serve(const struct soda_guard *guard, const char *certificates,
		   struct soda_tls_context **context_p, struct soda_conf_error *err)
{
	int r;

	*context_p = NULL;
	if (!guard && !certificates)
		return soda_conf_fail(err, -EINVAL,
				      "TLS needs keys: those of tenants (--tenants FILE), or a"
				      " certificate (--tls-certificates DIR)");
	r = be_ready(err);
	if (!r)
		r = make_context(true, certificates, context_p, err);
	if (!r)
		(*context_p)->guard = guard;
	return r;
}

int soda_tls_visit(const char *certificates, struct soda_tls_context **context_p,
		   struct soda_conf_error *err)
{
	int r = be_ready(err);

	*context_p = NULL;
	return r ? r : make_context(false, certificates, context_p, err);
}

int soda_tls_context_reload(struct soda_tls_context *context, struct soda_conf_error *err)
{
	struct soda_tls_context *fresh;
	SSL_CTX *before;
	int r;

	if (!context || !context->certificates)
		return 0;
	r = make_context(context->serves, context->certificates, &fresh, err);
	if (r)
		return r;
	pthread_mutex_lock(&context->lock);
	before = context->ssl;
	context->ssl = fresh->ssl;
	context->age = fresh->age;
	pthread_mutex_unlock(&context->lock);
	fresh->ssl = before; /* which lives as long as connections that were made with it */
	soda_tls_context_free(fresh);
	return 0;
}

bool soda_tls_context_is_old(struct soda_tls_context *context)
{
	struct timespec now, then;

	if (!context->certificates || context->serves)
		return false;
	now = age_of_roots(context->certificates);
	pthread_mutex_lock(&context->lock);
	then = context->age;
	pthread_mutex_unlock(&context->lock);
	return now.tv_sec != then.tv_sec || now.tv_nsec != then.tv_nsec;
}

void soda_tls_context_free(struct soda_tls_context *context)
{
	if (!context)
		return;
	enter();
	THE(SSL_CTX_free)(context->ssl);
	leave();
	pthread_mutex_destroy(&context->lock);
	free(context->certificates);
	free(context);
}

/* Connections */

static struct soda_tls *new_tls(struct soda_tls_context *context, int fd)
{
	struct soda_tls *tls = calloc(1, sizeof(*tls));
	BIO *bio;

	if (!tls)
		return NULL;
	tls->fd = fd;
	tls->guard = context->guard;
	tls->certificates = context->certificates;
	enter();
	bio = THE(BIO_new)(library.socket);
	pthread_mutex_lock(&context->lock);
	tls->ssl = bio ? THE(SSL_new)(context->ssl) : NULL;
	pthread_mutex_unlock(&context->lock);
	if (tls->ssl) {
		THE(BIO_set_data)(bio, tls);
		THE(BIO_set_init)(bio, 1);
		THE(SSL_set_bio)(tls->ssl, bio, bio);
		THE(SSL_set_ex_data)(tls->ssl, 0, tls);
	}
	leave();
	if (tls->ssl)
		return tls;
	free(tls);
	return NULL;
}

int soda_tls_accept(struct soda_tls_context *context, int fd, struct soda_tls **tls_p)
{
	struct soda_tls *tls = new_tls(context, fd);

	if (!tls)
		return -ENOMEM;
	tls->server = true;
	THE(SSL_set_accept_state)(tls->ssl);
	*tls_p = tls;
	return 0;
}

/* The name that the certificate is to be for. */
static bool expect(struct soda_tls *tls)
{
	X509_VERIFY_PARAM *param = THE(SSL_get0_param)(tls->ssl);
	uint8_t address[sizeof(struct in6_addr)];
	const char *name = tls->server_name;

	if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
		return THE(X509_VERIFY_PARAM_set1_ip_asc)(param, name) == 1;
	THE(X509_VERIFY_PARAM_set_hostflags)(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return THE(X509_VERIFY_PARAM_set1_host)(param, name, 0) == 1;
}

int soda_tls_connect(const struct soda_identity *as, int fd, bool data, struct soda_tls **tls_p)
{
	struct soda_tls *tls = new_tls(as->tls, fd);
	bool ready;

	if (!tls)
		return -ENOMEM;
	tls->data = data;
	memcpy(tls->server_name, as->server, sizeof(tls->server_name));
	enter();
	if (tls->certificates) {
		ready = expect(tls);
	} else {
		memcpy(tls->id, ID_PREFIX, strlen(ID_PREFIX));
		soda_key_format(as->key_id, sizeof(as->key_id), tls->id + strlen(ID_PREFIX));
		ready = !psk_of(as->key, tls->psk);
	}
	if (data) /* SSL_set_alpn_protos() says 0 where it could */
		ready = ready && THE(SSL_set_ciphersuites)(tls->ssl, DATA_SUITES) &&
			!THE(SSL_set_alpn_protos)(tls->ssl, data_protocol, DATA_PROTOCOL_BYTES);
	THE(SSL_set_connect_state)(tls->ssl);
	leave();
	if (!ready) {
		soda_tls_close(tls);
		return -ENOMEM;
	}
	*tls_p = tls;
	return 0;
}

void soda_tls_close(struct soda_tls *tls)
{
	if (!tls)
		return;
	enter();
	THE(SSL_free)(tls->ssl);
	leave();
	soda_wipe(tls, sizeof(*tls));
	free(tls);
}

/* Before a call of the library: what the BIO will say of it. */
static void begin(struct soda_tls *tls)
{
	tls->error = 0;
	tls->ended = false;
}

/* Why the handshake has failed, where that was not the socket. */
static int explain(struct soda_tls *tls, char why[SODA_TLS_WHY])
{
	const char *reason = words();
	long verified = THE(SSL_get_verify_result)(tls->ssl);

	if (tls->plain) {
		snprintf(why, SODA_TLS_WHY, "it does not speak TLS here, and TLS is wanted");
		return -EACCES;
	}
	if (tls->server) {
		snprintf(why, SODA_TLS_WHY, "TLS: %s%s%s",
			 *tls->no_key ? tls->no_key : "no handshake", reason ? ": " : "",
			 reason ? reason : "");
		return *tls->no_key ? -EACCES : -EPROTO;
	}
	if (tls->certificates && verified != X509_V_OK) {
		snprintf(why, SODA_TLS_WHY,
			 "its certificate is not that of the server \"%.63s\": %s",
			 tls->server_name, THE(X509_verify_cert_error_string)(verified));
		return -EACCES;
	}
	snprintf(why, SODA_TLS_WHY, "TLS: %s%s",
		 tls->certificates ? ""
				   : "it has not the key that is given, or wants another one: ",
		 reason ? reason : "no handshake");
	return -EACCES;
}

int soda_tls_handshake(struct soda_tls *tls, char why[SODA_TLS_WHY])
{
	int r;

	*why = 0;
	begin(tls);
	enter();
	r = THE(SSL_do_handshake)(tls->ssl) == 1 ? 0 : -EPROTO;
	if (r && tls->error)
		/* what is said in a handshake fits into a socket's buffer, which is empty */
		r = tls->error == -EAGAIN && tls->wants_write ? -ENOBUFS : tls->error;
	else if (r && tls->ended)
		r = -ECONNRESET;
	else if (r)
		r = explain(tls, why);
	else if (tls->data)
		r = give_to_kernel(tls, why);
	leave();
	if (r != -EAGAIN) {
		soda_wipe(tls->psk, sizeof(tls->psk));
		soda_wipe(tls->secrets, sizeof(tls->secrets));
	}
	return r;
}

/* What a call of the library has come to that did not succeed. */
static ssize_t failed(struct soda_tls *tls)
{
	if (tls->error)
		return tls->error;
	return -ECONNABORTED;
}

/* The first bytes of what is to be sent, in one piece, so that they are one record. */
static const void *gather(struct soda_tls *tls, const struct iovec *iov, int n, size_t *bytes_p)
{
	size_t bytes = 0;

	while (n && !iov->iov_len) {
		iov++;
		n--;
	}
	if (n && (n == 1 || iov->iov_len >= RECORD_BYTES)) {
		*bytes_p = iov->iov_len < RECORD_BYTES ? iov->iov_len : RECORD_BYTES;
		return iov->iov_base;
	}
	for (int i = 0; i < n && bytes < RECORD_BYTES; i++) {
		size_t left = RECORD_BYTES - bytes;
		size_t some = iov[i].iov_len < left ? iov[i].iov_len : left;

		if (some) /* else there may be no memory at all */
			memcpy(tls->record + bytes, iov[i].iov_base, some);
		bytes += some;
	}
	*bytes_p = bytes;
	return tls->record;
}

/* By the kernel: as on any socket. */
static ssize_t kernel_send(int fd, const struct iovec *iov, int n)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
	ssize_t sent = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

	return sent < 0 ? -errno : sent;
}

static ssize_t kernel_recv(int fd, void *buf, size_t bytes)
{
	ssize_t got = recv(fd, buf, bytes, MSG_DONTWAIT);

	if (got < 0 && (errno == EBADMSG || errno == EIO)) /* a forged record; an alert */
		return -ECONNABORTED;
	return got < 0 ? -errno : got;
}

ssize_t soda_tls_send(struct soda_tls *tls, const struct iovec *iov, int n)
{
	size_t bytes, done = 0;
	const void *from;
	ssize_t r;

	if (tls->in_kernel)
		return kernel_send(tls->fd, iov, n);
	from = gather(tls, iov, n, &bytes);
	if (!bytes)
		return 0;
	begin(tls);
	enter();
	r = THE(SSL_write_ex)(tls->ssl, from, bytes, &done) ? (ssize_t)done : failed(tls);
	leave();
	return r;
}

ssize_t soda_tls_recv(struct soda_tls *tls, void *buf, size_t bytes)
{
	size_t done = 0;
	ssize_t r;

	if (tls->in_kernel)
		return kernel_recv(tls->fd, buf, bytes);
	begin(tls);
	enter();
	if (THE(SSL_read_ex)(tls->ssl, buf, bytes, &done))
		r = (ssize_t)done;
	else
		r = tls->ended ? 0 : failed(tls);
	leave();
	return r;
}

int soda_tls_channel(struct soda_tls *tls, uint8_t channel[SODA_KEY_BYTES])
{
	int r;

	enter();
	r = THE(SSL_export_keying_material)(tls->ssl, channel, SODA_KEY_BYTES, CHANNEL,
					    strlen(CHANNEL), NULL, 0, 0);
	leave();
	return r == 1 ? 0 : -EIO;
}
