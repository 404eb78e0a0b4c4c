#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

#include "http/stream.h"

static int ssl_err(struct err *e, const char *act, const char *what)
{
	unsigned long code = ERR_get_error();
	const char *why = code ? ERR_reason_error_string(code) : NULL;

	ERR_clear_error();
	return err_set(e, EINVAL, "%s '%.150s': %s", act, what, why ? why : "OpenSSL refused it");
}

static SSL_CTX *make(const SSL_METHOD *m)
{
	SSL_CTX *c = SSL_CTX_new(m);

	if (!c)
		return NULL;
	SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
	SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(c, 1);
	return c;
}

/* A client that offers ALPN without http/1.1 is refused; one that offers none is served. */
static int pick_alpn(SSL *ssl, const unsigned char **out, unsigned char *outlen, const unsigned char *in, unsigned inlen, void *arg)
{
	static const unsigned char ours[] = "\x08http/1.1";

	(void)ssl;
	(void)arg;
	return SSL_select_next_proto((unsigned char **)out, outlen, ours, sizeof ours - 1, in, inlen) == OPENSSL_NPN_NEGOTIATED
		? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

int http_tls_server_ctx(const char *cert_file, const char *key_file, SSL_CTX **ret, struct err *e)
{
	SSL_CTX *c = make(TLS_server_method());
	int r;

	if (!c)
		return err_set(e, ENOMEM, "prepare TLS: no memory");
	SSL_CTX_set_alpn_select_cb(c, pick_alpn, NULL);
	SSL_CTX_set_session_id_context(c, (const unsigned char *)"http", 4);
	/* the door adds certificates itself, one for each name */
	if (cert_file && SSL_CTX_use_certificate_chain_file(c, cert_file) != 1)
		r = ssl_err(e, "read the certificate", cert_file);
	else if (key_file && SSL_CTX_use_PrivateKey_file(c, key_file, SSL_FILETYPE_PEM) != 1)
		r = ssl_err(e, "read the key", key_file);
	else if (cert_file && key_file && SSL_CTX_check_private_key(c) != 1)
		r = ssl_err(e, "match the key with the certificate", cert_file);
	else
		r = 0;
	if (r < 0)
		SSL_CTX_free(c);
	else
		*ret = c;
	return r;
}

int http_tls_client_ctx(const char *ca_file, SSL_CTX **ret, struct err *e)
{
	SSL_CTX *c = make(TLS_client_method());
	int r = 0;

	if (!c)
		return err_set(e, ENOMEM, "prepare TLS: no memory");
	SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_alpn_protos(c, (const unsigned char *)"\x08http/1.1", 9);
	if (ca_file ? SSL_CTX_load_verify_locations(c, ca_file, NULL) != 1 : SSL_CTX_set_default_verify_paths(c) != 1)
		r = ssl_err(e, "read the certificate authorities", ca_file ? ca_file : "of the system");
	if (r < 0)
		SSL_CTX_free(c);
	else
		*ret = c;
	return r;
}
