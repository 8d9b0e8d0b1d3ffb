/* A data cache of two levels on a trace of addresses, with the stream prefetcher of its core.

   Both levels are write-back and write-allocate, and a line is looked up by its set. A victim is an
   empty way, else the least recently used one, or (random=1) one that a fixed pseudo-random
   sequence picks. The second level holds what the first fetched; it is not kept inclusive.

   A stream is a sequence of lines, missed or first used after a prefetch, at one stride of at most
   `reach` lines. After `train` equal strides the next `distance` lines are fetched into the first
   level, within the page of 4 KiB. The least recently used stream makes way for a new one. */
#include <stdint.h>
#include <stdlib.h>

enum event {
  LOADS_L2,      /* loads of a line that the second level had */
  LOADS_MEMORY,  /* loads of a line that no cache had */
  STORES_L2,
  STORES_MEMORY,
  AHEAD_L2,      /* first uses of a line that was prefetched from the second level */
  AHEAD_MEMORY,  /* first uses of a line that was prefetched from memory */
  MOVED_L2,      /* lines moved between the levels, prefetches and write-backs included */
  MOVED_MEMORY,  /* lines moved between the second level and memory, likewise */
  EVENTS
};

enum origin { USED, FROM_L2, FROM_MEMORY };

typedef struct { uint64_t line, stamp; uint8_t valid, dirty, origin; } way_t;
typedef struct { uint32_t sets, ways; way_t *at; } level_t;
typedef struct { int64_t last, stride; uint32_t count; uint64_t stamp; } stream_t;
typedef struct {
  level_t level[2];
  uint32_t shift, streams, train, distance, reach, random, seed;
  uint64_t now;
  stream_t *stream;
} memory_t;

static void memory_make(memory_t *m, const uint32_t *kib, const uint32_t *ways, uint32_t line) {
  while ((1u << m->shift) < line) m->shift++;
  for (int k = 0; k < 2; k++) {
    m->level[k].ways = ways[k];
    m->level[k].sets = kib[k] * 1024 / line / ways[k];
    m->level[k].at = calloc((size_t)m->level[k].sets * ways[k], sizeof(way_t));
  }
  m->stream = calloc(m->streams ? m->streams : 1, sizeof(stream_t));
  m->seed = 1;
}

static way_t *memory_set(level_t *l, uint64_t line) {
  return l->at + (size_t)(line % l->sets) * l->ways;
}

static way_t *memory_find(memory_t *m, level_t *l, uint64_t line) {
  way_t *set = memory_set(l, line);
  for (uint32_t k = 0; k < l->ways; k++)
    if (set[k].valid && set[k].line == line) {
      set[k].stamp = ++m->now;
      return set + k;
    }
  return NULL;
}

static way_t *memory_victim(memory_t *m, level_t *l, uint64_t line) {
  way_t *set = memory_set(l, line), *oldest = set;
  for (uint32_t k = 0; k < l->ways; k++) {
    if (!set[k].valid) return set + k;
    if (set[k].stamp < oldest->stamp) oldest = set + k;
  }
  if (!m->random) return oldest;
  m->seed ^= m->seed << 13;
  m->seed ^= m->seed >> 17;
  m->seed ^= m->seed << 5;
  return set + m->seed % l->ways;
}

static void memory_put(memory_t *m, way_t *way, uint64_t line, int dirty, int origin) {
  way->line = line;
  way->stamp = ++m->now;
  way->valid = 1;
  way->dirty = dirty;
  way->origin = origin;
}

/* Puts a line into the second level, which may write another one back. */
static void memory_fill_second(memory_t *m, uint64_t line, int dirty, uint64_t *events) {
  way_t *way = memory_victim(m, &m->level[1], line);
  events[MOVED_MEMORY] += way->valid && way->dirty;
  memory_put(m, way, line, dirty, USED);
}

/* Fetches a line into the first level and says where it was. */
static int memory_fetch(memory_t *m, uint64_t line, int dirty, int ahead, uint64_t *events) {
  int from = FROM_L2;
  if (!memory_find(m, &m->level[1], line)) {
    from = FROM_MEMORY;
    events[MOVED_MEMORY]++;
    memory_fill_second(m, line, 0, events);
  }
  events[MOVED_L2]++;
  way_t *way = memory_victim(m, &m->level[0], line);
  if (way->valid && way->dirty) {
    way_t *below = memory_find(m, &m->level[1], way->line);
    events[MOVED_L2]++;
    if (below) below->dirty = 1;
    else memory_fill_second(m, way->line, 1, events);
  }
  memory_put(m, way, line, dirty, ahead ? from : USED);
  return from;
}

static void memory_train(memory_t *m, uint64_t line, uint64_t *events) {
  stream_t *found = NULL, *oldest = m->stream;
  for (uint32_t k = 0; k < m->streams; k++) {
    stream_t *s = m->stream + k;
    int64_t step = (int64_t)line - s->last;
    if (s->stamp && step && step <= (int64_t)m->reach && -step <= (int64_t)m->reach) {
      if (!found || s->stamp > found->stamp) found = s;
    }
    if (s->stamp < oldest->stamp) oldest = s;
  }
  if (!found) {
    *oldest = (stream_t){(int64_t)line, 0, 0, ++m->now};
    return;
  }
  int64_t step = (int64_t)line - found->last;
  found->count = step == found->stride ? found->count + 1 : 1;
  *found = (stream_t){(int64_t)line, step, found->count, ++m->now};
  if (found->count < m->train) return;
  for (uint32_t k = 1; k <= m->distance; k++) {
    uint64_t next = line + k * (uint64_t)step;
    if ((next << m->shift) >> 12 != (line << m->shift) >> 12) return;
    if (!memory_find(m, &m->level[0], next)) memory_fetch(m, next, 0, 1, events);
  }
}

/* One access; `events` are the counts of the block that makes it. */
static void memory_access(memory_t *m, uint64_t at, uint32_t size, int store, uint64_t *events) {
  for (uint64_t line = at >> m->shift; line <= (at + size - 1) >> m->shift; line++) {
    way_t *way = memory_find(m, &m->level[0], line);
    if (way) {
      int origin = way->origin;
      way->origin = USED;
      way->dirty |= store;
      if (origin == USED) continue;
      events[origin == FROM_L2 ? AHEAD_L2 : AHEAD_MEMORY]++;
    } else {
      int from = memory_fetch(m, line, store, 0, events);
      events[(store ? STORES_L2 : LOADS_L2) + (from == FROM_MEMORY)]++;
    }
    if (m->streams) memory_train(m, line, events);
  }
}
