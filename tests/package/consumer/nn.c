/* SPDX-License-Identifier: Apache-2.0 */
/* A user of libreshard_nn: succeeds when a product of matrices is right, and when the words for an
 * error of libreshard_nn can be read from libreshard. */
#include <reshard/reshard_nn.h>

#include <stdio.h>
#include <string.h>

static reshard_status multiply(double *out_value)
{
    const float numbers[] = {1, 2, 3, 4};
    reshard_tensor *square = NULL;
    reshard_scope *scope = NULL;
    reshard_status status =
        reshard_tensor_from_data(NULL, RESHARD_F32, 2, (int64_t[]){2, 2}, numbers, &square);
    if (status == RESHARD_OK)
        status = reshard_scope_open(NULL, &scope);
    if (status == RESHARD_OK) {
        reshard_tensor *product = reshard_matmul(square, square);
        if (product != NULL)
            status = reshard_tensor_get(product, (int64_t[]){1, 1}, out_value);
        reshard_status closed = reshard_scope_close(scope);
        status = status != RESHARD_OK ? status : closed;
    }
    reshard_tensor_release(square);
    return status;
}

int main(void)
{
    double value = 0;
    reshard_tensor *none = NULL;
    if (multiply(&value) != RESHARD_OK || value != 22) {
        fprintf(stderr, "%g: %s\n", value, reshard_error_text());
        return 1;
    }
    if (reshard_tensor_create(NULL, RESHARD_F32, 1, (int64_t[]){-7}, &none) == RESHARD_OK ||
        strstr(reshard_error_text(), "-7") == NULL) {
        fprintf(stderr, "words that do not tell of -7: \"%s\"\n", reshard_error_text());
        return 1;
    }
    return 0;
}
