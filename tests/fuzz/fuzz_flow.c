/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_flow.c - a folder of files from strangers through everything that is done with one: open,
 * read, hash, digest, convert, be interrupted and resume, reopen, compare. What is refused has
 * words; what is converted is the same, byte for byte.
 *
 * The input is four bytes of choices and then files, each
 *
 *     name, kind, 2 bytes of length n, 2 bytes of number d, n bytes
 *
 * with little-endian numbers. The name is one of a list. Of odd kind the n bytes are the header of
 * a safetensors file, whose length is put before it and d bytes of data behind it, so that the
 * fuzzer need not guess lengths. Of kind 2 they are the pickle of a zip file as torch.save writes
 * it, with storages of d bytes: "0" has the numbers 0, 1, 2, .. of 64 bits, which a mesh may be,
 * the others anything. The file JOURNAL changes the journal of an interrupted conversion:
 * of even kind it replaces it, of odd kind it is added (xor) from byte d on.
 */
#include "checkpoint/archive/sha256.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/torch_zip.h"

#include <reshard/comparison.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX ((size_t)256 << 20)
#define SECONDS_MAX 3.0
/* Strides of 0 may make a large tensor of few bytes, which takes time. */
#define TENSORS_BYTES_MAX ((uint64_t)16 << 20)

static const char *const names[] = {"model.safetensors",
                                    "model-00001-of-00002.safetensors",
                                    "model-00002-of-00002.safetensors",
                                    "model.safetensors.index.json",
                                    "config.json",
                                    "shard-00001-model-00001-of-00001.safetensors",
                                    "shard-00002-model-00001-of-00001.safetensors",
                                    "rank-00000-of-00002.safetensors",
                                    "rank-00001-of-00002.safetensors",
                                    "tokenizer.json",
                                    "pytorch_model.bin",
                                    ".metadata",
                                    "__0_0.distcp",
                                    "__1_0.distcp",
                                    "model.pt",
                                    "model_world_size_2_rank_0.pt",
                                    "model_world_size_2_rank_1.pt",
                                    "optim_world_size_2_rank_0.pt",
                                    "optim_world_size_2_rank_1.pt",
                                    "metadata.pkl",
                                    "checkpoint_0.pt",
                                    "checkpoint_1.pt"};
enum {
    NAME_COUNT = sizeof names / sizeof names[0],
    RULES = NAME_COUNT, /* beside the folder */
    JOURNAL,
    NAMES
};

static const char *const meshes[] = {NULL,        "tp=2",   "dp=2", "tp=3",
                                     "pp=2,tp=2", "fsdp=2", "x=5",  "1"};
static const char *const formats[] = {NULL,  "hf",    "dcp-safetensors", "rank-files",
                                      "dcp", "torch", "torch",           "hf"};

static char top[64]; /* holds in/, some.rules, out/ and out.partial/ */

/* ---- files ----------------------------------------------------------------------------------- */

static void join(char out[512], const char *folder, const char *name)
{
    int length = snprintf(out, 512, "%s/%s", folder, name);
    if (length < 0 || length >= 512)
        fuzz_find("too long a path", name);
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char inside[512];
        join(inside, path, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlink(inside) != 0)
            remove_folder(inside);
    }
    if (folder != NULL)
        (void)closedir(folder);
    (void)rmdir(path);
}

static void remove_top(void)
{
    remove_folder(top);
}

static void make_top(void)
{
    (void)snprintf(top, sizeof top, "/dev/shm/reshard-fuzz-XXXXXX");
    if (mkdtemp(top) == NULL) {
        (void)snprintf(top, sizeof top, "/tmp/reshard-fuzz-XXXXXX");
        if (mkdtemp(top) == NULL)
            fuzz_find("folder", top);
    }
    (void)atexit(remove_top);
}

static void write_file(const char *path, const void *const parts[3], const size_t counts[3])
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        fuzz_find("cannot write", path);
    for (int i = 0; i < 3; i++) {
        if (counts[i] != 0 && fwrite(parts[i], 1, counts[i], file) != counts[i])
            fuzz_find("cannot write", path);
    }
    (void)fclose(file);
}

/* ---- the input ------------------------------------------------------------------------------- */

typedef struct record {
    int name, is_odd, is_torch;
    size_t count, number;
    const uint8_t *bytes;
} record;

typedef struct flow {
    uint8_t choices[4];
    int has_rules;
    record journal;
    int cancel_after; /* so many questions; negative: never */
    fuzz_limits limits;
    reshard_checkpoint *source;
    reshard_checkpoint_options opening;
    reshard_conversion_options planning;
    char in[512], out[512], partial[512], rules[512];
} flow;

/* The next file of the input; 0 at its end. */
static int take_record(const uint8_t **data, size_t *size, record *out)
{
    const uint8_t *head = *data;
    if (*size < 6)
        return 0;
    size_t count = (size_t)head[2] | (size_t)head[3] << 8, room = *size - 6;
    *out = (record){.name = head[0] % NAMES,
                    .is_odd = head[1] & 1,
                    .is_torch = (head[1] & 3) == 2,
                    .count = count < room ? count : room,
                    .number = (size_t)head[4] | (size_t)head[5] << 8,
                    .bytes = head + 6};
    *data += 6 + out->count;
    *size -= 6 + out->count;
    return 1;
}

static void write_record(flow *f, const record *r)
{
    static uint8_t filler[1 << 16];
    uint8_t length[8] = {(uint8_t)r->count, (uint8_t)(r->count >> 8)};
    const void *const parts[3] = {length, r->bytes, filler};
    const size_t counts[3] = {r->is_odd ? 8 : 0, r->count, r->is_odd ? r->number : 0};
    char path[512];
    for (size_t i = 0; filler[1] == 0 && i < sizeof filler; i++)
        filler[i] = (uint8_t)(i * 37 + (i >> 8));
    if (r->name == JOURNAL) {
        f->journal = *r;
        return;
    }
    join(path, f->in, r->name < NAME_COUNT ? names[r->name] : "");
    if (r->name == RULES)
        (void)snprintf(path, sizeof path, "%s", f->rules);
    f->has_rules = f->has_rules || r->name == RULES;
    if (r->is_torch)
        fuzz_write_torch(path, r->bytes, r->count, filler, r->number);
    else
        write_file(path, parts, counts);
}

static void read_choices(flow *f)
{
    static const char *const dtypes[] = {"bf16"}, *const renames[] = {"*=new.{1}"};
    uint8_t opening = f->choices[0], planning = f->choices[1];
    const char *rules = f->has_rules ? f->rules : "fsdp";
    f->opening = (reshard_checkpoint_options){.size = sizeof f->opening,
                                              .from = meshes[opening % 8],
                                              .rules = (opening & 8) != 0 ? rules : NULL};
    f->planning =
        (reshard_conversion_options){.size = sizeof f->planning,
                                     .to = meshes[planning % 8],
                                     .format = formats[planning / 8 % 4 + opening / 16 % 2 * 4],
                                     .dtensors = (opening & 32) != 0,
                                     .all = (opening & 64) == 0,
                                     .rules = (planning & 32) != 0 ? rules : NULL,
                                     .dtype_count = (planning & 64) != 0,
                                     .dtypes = dtypes,
                                     .rename_count = (planning & 128) != 0,
                                     .renames = renames,
                                     .memory_bytes_max = (size_t)1 << 20,
                                     .threads = 1};
    f->opening.keep_names = f->planning.rules != NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A tensor's bytes, read as one box, have the hash that tile by tile was found. */
static void check_tensor(const flow *f, int64_t index, const char *hash_text)
{
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    unsigned char hash[RS_SHA256_BYTES];
    char text[RS_SHA256_TEXT];
    rs_sha256 sha;
    if (!fuzz_passes(reshard_checkpoint_tensor(f->source, index, &tensor)))
        fuzz_find("tensor", reshard_error_text());
    void *memory = malloc((size_t)tensor.bytes + 1);
    if (memory == NULL ||
        !fuzz_passes(reshard_checkpoint_read(f->source, index, NULL, memory, (size_t)tensor.bytes)))
        fuzz_find("a tensor of an open checkpoint cannot be read", reshard_error_text());
    rs_sha256_init(&sha, NULL);
    rs_sha256_add(&sha, memory, (size_t)tensor.bytes);
    rs_sha256_finish(&sha, hash);
    rs_sha256_text(hash, text);
    if (strcmp(text, hash_text) != 0)
        fuzz_find("two ways of reading differ", tensor.name);
    free(memory);
}

static void read_all(const flow *f)
{
    const reshard_digest_options options = {.size = sizeof options, .threads = 1};
    reshard_digests *digests = NULL;
    reshard_hashes *hashes = NULL;
    if (!fuzz_passes(reshard_checkpoint_digest(f->source, &options, &digests)) ||
        !fuzz_passes(reshard_checkpoint_hash(f->source, &options, &hashes)))
        fuzz_find("an open checkpoint cannot be digested", reshard_error_text());
    for (int64_t i = 0; i < hashes->count; i++) {
        reshard_layout *layout = NULL;
        reshard_spec *spec = NULL;
        check_tensor(f, i, hashes->tensors[i]);
        if (fuzz_passes(reshard_checkpoint_layout(f->source, i, &layout)))
            (void)fuzz_passes(reshard_layout_infer(layout, &spec));
        reshard_spec_release(spec);
        reshard_layout_release(layout);
    }
    reshard_hashes_destroy(hashes);
    reshard_digests_destroy(digests);
}

/* ---- converting ------------------------------------------------------------------------------ */

static int ask_cancelled(void *user)
{
    flow *f = user;
    if (f->cancel_after < 0)
        return 0;
    return f->cancel_after-- == 0;
}

static void change_journal(const flow *f)
{
    const record *r = &f->journal;
    static uint8_t bytes[1 << 17];
    char path[512];
    size_t count = 0;
    join(path, f->partial, ".reshard-journal");
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return;
    count = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    if (r->is_odd) {
        for (size_t i = 0; i < r->count && r->number + i < count; i++)
            bytes[r->number + i] ^= r->bytes[i];
    } else {
        memcpy(bytes, r->bytes, r->count);
        count = r->count;
    }
    const void *const parts[3] = {bytes, bytes, bytes};
    const size_t counts[3] = {count, 0, 0};
    write_file(path, parts, counts);
}

/* Converts, in two runs if the choices say so. Returns whether there is a complete output. */
static int convert(flow *f, const reshard_conversion *conversion)
{
    reshard_conversion_run_options running = {
        .size = sizeof running, .no_sync = 1, .verify = f->choices[2] >> 7, .journal_bytes = 1};
    f->cancel_after = (f->choices[2] & 1) != 0 ? f->choices[3] : -1;
    int done = fuzz_passes(reshard_conversion_run(conversion, f->out, &running, NULL));
    f->cancel_after = -1;
    if (done || (f->choices[2] & 1) == 0)
        return done;
    if (f->journal.bytes != NULL) {
        /* A journal that lies about blocks is found out when they are read back. */
        change_journal(f);
        running.verify = 1;
    }
    running.resume = 1;
    return fuzz_passes(reshard_conversion_run(conversion, f->out, &running, NULL));
}

static void check_output(const flow *f)
{
    const reshard_comparison_options options = {
        .size = sizeof options, .conversion = &f->planning, .threads = 1};
    reshard_comparison_stats stats = {.size = sizeof stats};
    reshard_checkpoint *output = NULL;
    reshard_comparison *comparison = NULL;
    if (!fuzz_passes(reshard_checkpoint_open(f->limits.context, f->out, NULL, &output)))
        fuzz_find("what was converted cannot be opened", reshard_error_text());
    if (!fuzz_passes(reshard_checkpoint_compare(f->source, output, &options, &comparison)) ||
        !fuzz_passes(reshard_comparison_get_stats(comparison, &stats)))
        fuzz_find("what was converted cannot be compared", reshard_error_text());
    if (stats.difference_count != 0)
        fuzz_find("what was converted", "differs");
    reshard_comparison_destroy(comparison);
    reshard_checkpoint_destroy(output);
}

static uint64_t count_bytes(const flow *f)
{
    uint64_t bytes = 0;
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    for (int64_t i = 0; reshard_checkpoint_tensor(f->source, i, &tensor) == RESHARD_OK; i++)
        bytes += tensor.bytes < TENSORS_BYTES_MAX ? tensor.bytes : TENSORS_BYTES_MAX + 1;
    return bytes;
}

static void run_flow(flow *f)
{
    reshard_conversion_stats stats = {.size = sizeof stats};
    reshard_conversion *conversion = NULL;
    if (!fuzz_passes(reshard_checkpoint_open(f->limits.context, f->in, &f->opening, &f->source)))
        return;
    if (count_bytes(f) > TENSORS_BYTES_MAX) {
        reshard_checkpoint_destroy(f->source);
        return;
    }
    read_all(f);
    if (fuzz_passes(
            reshard_conversion_create(f->limits.context, f->source, &f->planning, &conversion)) &&
        fuzz_passes(reshard_conversion_get_stats(conversion, &stats)) && convert(f, conversion) &&
        strcmp(stats.format, "rank-files") != 0 &&
        (f->planning.all || strcmp(stats.format, "hf") != 0)) /* which may be the model alone */
        check_output(f);
    reshard_conversion_destroy(conversion);
    reshard_checkpoint_destroy(f->source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static flow f;
    record r;
    if (size < sizeof f.choices)
        return 0;
    if (top[0] == '\0')
        make_top();
    f = (flow){.cancel_after = -1};
    memcpy(f.choices, data, sizeof f.choices);
    data += sizeof f.choices;
    size -= sizeof f.choices;
    join(f.in, top, "in");
    join(f.out, top, "out");
    join(f.partial, top, "out.partial");
    join(f.rules, top, "some.rules");
    remove_folder(f.in);
    remove_folder(f.out);
    remove_folder(f.partial);
    if (mkdir(f.in, 0700) != 0)
        fuzz_find("folder", f.in);
    while (take_record(&data, &size, &r))
        write_record(&f, &r);
    read_choices(&f);
    fuzz_limits_begin(&f.limits, BYTES_MAX, SECONDS_MAX, ask_cancelled, &f);
    run_flow(&f);
    fuzz_limits_end(&f.limits);
    return 0;
}
