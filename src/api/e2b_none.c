#include "api/api.h"

/* A server without the E2B dialect. */
int e2b_create(struct api *a, struct err *e)
{
	a->e2b = NULL;
	return 0;
}

void e2b_free(struct api *a)
{
}

bool e2b_try(struct api *a, struct http_req *r)
{
	return false;
}
