/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut_vocabulary.c - the head of a language model whose vocabulary is cut over ranks: 50 words,
 * padded to 52 rows so that four ranks have 13 each. Logits stay cut; the loss exchanges three
 * numbers for each row. Rows with the label -100 do not count, nor do the two columns of padding.
 */
#include <reshard/reshard_nn.h>

#include "examples/example.h"

#include <stdio.h>

enum { RANKS = 4, ROWS = 6, WIDTH = 8, WORDS = 50, PADDED = 52 };

static const reshard_cross_entropy_options options = {
    .size = sizeof options, .ignores = 1, .ignore_index = -100, .classes = WORDS};

/* x and weight as whole tensors, and the weight cut over its rows, which are words. */
static reshard_status compare(reshard_group *group, reshard_tensor *x, reshard_tensor *weight,
                              reshard_tensor *labels)
{
    reshard_status status = RESHARD_OK;
    int close = 0;
    reshard_scope *scope = NULL;
    reshard_spec *words = NULL, *whole = NULL;
    reshard_tensor *cut = NULL, *input = NULL;
    TRY(reshard_spec_parse(NULL, "4: S(0)", &words));
    TRY(reshard_spec_parse(NULL, "4: R", &whole));
    TRY(reshard_tensor_shard(NULL, group, words, 0, weight, &cut));
    TRY(reshard_tensor_shard(NULL, group, whole, 0, x, &input));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *dense = reshard_linear(x, weight, NULL);
    reshard_tensor *expected = reshard_cross_entropy(dense, labels, &options);
    reshard_tensor *logits = reshard_linear(input, cut, NULL); /* 4: S(1) */
    reshard_tensor *loss = reshard_cross_entropy_loss(logits, labels, &options);
    reshard_tensor *found = reshard_tensor_full(loss);
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_allclose(found, expected, 1e-12, 0, 0, &close));
    TRY(check(close, "the losses differ"));
    TRY(reshard_backward(loss, NULL, NULL));
    TRY(reshard_backward(expected, NULL, NULL));
    reshard_tensor *gradient = reshard_tensor_full(reshard_tensor_gradient(cut));
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_allclose(gradient, reshard_tensor_gradient(weight), 1e-9, 1e-12, 0, &close));
    TRY(check(close, "the gradients differ"));
    /* Log-probabilities stay cut, too. */
    reshard_tensor *scores = reshard_tensor_full(reshard_log_softmax(logits, -1));
    TRY(reshard_scope_status(scope));
    TRY(reshard_tensor_allclose(scores, reshard_log_softmax(dense, -1), 1e-12, 0, 0, &close));
    TRY(check(close, "the log-probabilities differ"));
out:
    status = close_scope(&scope, status);
    reshard_spec_release(words);
    reshard_spec_release(whole);
    reshard_tensor_release(cut);
    reshard_tensor_release(input);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    reshard_tensor *x = NULL, *weight = NULL, *labels = NULL;
    (void)user;
    TRY(reshard_tensor_create(NULL, RESHARD_F64, 2, (int64_t[]){ROWS, WIDTH}, &x));
    TRY(reshard_tensor_create(NULL, RESHARD_F64, 2, (int64_t[]){PADDED, WIDTH}, &weight));
    TRY(reshard_tensor_create(NULL, RESHARD_I64, 1, (int64_t[]){ROWS}, &labels));
    TRY(reshard_tensor_fill_random(x, RESHARD_NORMAL, 1));
    TRY(reshard_tensor_fill_random(weight, RESHARD_NORMAL, 2));
    for (int64_t i = 0; i < ROWS; i++)
        TRY(reshard_tensor_set(labels, &i, i == 2 ? -100 : (double)(i * 11 % WORDS)));
    TRY(reshard_tensor_set_requires_grad(weight, 1));
    TRY(compare(group, x, weight, labels));
out:
    reshard_tensor_release(x);
    reshard_tensor_release(weight);
    reshard_tensor_release(labels);
    return status;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    if (status == RESHARD_OK)
        puts("a cut vocabulary: the loss and gradients of the whole one");
    return finish(status);
}
