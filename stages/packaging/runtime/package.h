/* The package's own interface, which the emitted graph.c defines. The packager renames package_f
 * to NAME_f and leaves those names visible; graph_f it hides. */
#ifndef PACKAGE_H
#define PACKAGE_H

#include <stddef.h>
#include <stdint.h>

int32_t package_abi_version(void);
size_t package_arena_size(int32_t n_threads);
size_t package_context_size(void);
int package_supported(void);
int package_init(void *context, void *arena, int32_t n_threads);
int package_run(void *context, const void *const in[], void *const out[]);
void package_finish(void *context);
const char *package_error(int code);

int32_t graph_inputs(void);
int32_t graph_outputs(void);
uint64_t graph_input_bytes(int32_t index);
uint64_t graph_output_bytes(int32_t index);

#endif
