/* Everything a run needs to know before it starts, checked by the caller (core/app parses flags
 * and makes the preflight). Plain values; strings are borrowed and outlive the run. */
#ifndef ROLLTOP_LOOP_RUN_CONFIG_H
#define ROLLTOP_LOOP_RUN_CONFIG_H

#include "core/diagnose/diagnose.h"
#include "core/fleet/probe.h"
#include "core/fleet/sources.h"
#include "core/loop/loop.h"
#include "core/policy/delta.h"
#include "core/rollout/data_source.h"
#include "core/rollout/rollout.h"
#include "core/fleet/engine_settings.h"
#include "core/train/trainer.h"

#include <stdio.h>

typedef struct SampleSettings { /* of training or of evaluation */
    double temperature, top_p;
    int64_t top_k, max_response_len;
    int64_t n_per_prompt;
    const char *rm_type; /* a row's metadata.rm_type wins */
} SampleSettings;

typedef struct RunConfig {
    /* what and where */
    const char *run_id, *name, *log_path, *work_dir, *socket_path, *program;
    const char *argv_json, *config_json, *user; /* redacted */
    bool resume;
    FILE *lines; /* one plain line per step; NULL: none */

    /* parts: local children, or addresses of others */
    int64_t local_engines, engine_threads;
    const char *const *engine_extra; /* more arguments for local engines, NULL-terminated */
    const char *const *engine_command; /* started in place of rolltop's own engines; or NULL */
    const EngineSetting *engine_settings; /* what engines of others should run with */
    size_t engine_setting_count;
    bool router; /* rollout_url is an SGLang router: engines are registered there */
    const char *const *engine_addrs;
    size_t engine_addr_count;
    const char *rollout_url;   /* frontend of others; NULL: local frontend */
    SourcesConfig sources;     /* changing lists of engines; frontend_url is the driver's own */
    int64_t gone_looks;        /* hysteresis of DNS and frontend lists; 0: 3 */
    ProbeSettings probe;       /* ping_ms 0: defaults */
    const char *engine_bearer, *engine_admin; /* keys, from environment or file; NULL none */
    const char *const *trainer_command; /* NULL: the built-in one */

    /* model, data */
    const char *hf_checkpoint;
    DataConfig data, eval_data; /* eval_data.path NULL: no evaluation */
    int64_t max_prompt_len;     /* 0: no limit */
    SampleSettings rollout, eval;
    int64_t rollout_batch_size, rollout_seed;
    int64_t concurrency;        /* samples in flight per engine */
    const char *const *stop;    /* NULL-terminated or NULL */
    const int32_t *stop_ids;
    size_t stop_id_count;
    bool skip_special_tokens;
    UpdateInflight inflight;
    int64_t max_staleness;      /* updates that a token may be behind its batch's policy */
    bool mask_offpolicy;        /* tokens of older policies are not trained on */
    bool unary;                 /* generation by whole replies */
    bool direct;                /* no frontend: samples go to the engines themselves */

    /* training and policies */
    LoopConfig loop;
    const DiagRules *rules; /* what raises alerts; NULL: the usual rules */
    TrainerConfig trainer;
    ModelDtype publish_dtype;
    int64_t log_keep_us, log_max_bytes; /* retention of the log; 0: everything stays */
    int64_t keep_policies;
    int64_t state_interval; /* steps between the trainer's states for a resume; 1: each */
    bool delta;                 /* publish deltas; engines follow with copies of their own */
    DeltaEncoding delta_encoding;
    DeltaSum delta_sum;
    int64_t delta_full_every;   /* at least one complete version in so many */
    const char *local_checkpoint_dir; /* of engines of others, on their hosts; NULL: they load
                                       * complete checkpoints */
    double norm_jump;
    int64_t update_budget_us[TXN_PHASE_COUNT]; /* of a transaction; 0: defaults */
    int64_t update_doubt_us; /* how long a call that was given up may still act; 0: default */
    int64_t disk_wait_us; /* how long a write that the disk refuses is tried again */
    const char *save_dir; /* NULL: no checkpoints besides the resume state */
    int64_t startup_s;    /* bound for parts to come up */
} RunConfig;

#endif
