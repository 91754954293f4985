/* Inside of the learner, shared by its files. */
#ifndef ROLLTOP_TRAIN_LEARNER_PRIVATE_H
#define ROLLTOP_TRAIN_LEARNER_PRIVATE_H

#include "core/train/learner.h"
#include "core/train/masters.h"

enum { LEARNER_FILES = 8 };

struct Learner {
    TrainerConfig config;
    Graph *graph, *reference, *teacher; /* the latter two NULL: none */
    AdamW *adamw;
    Masters *masters; /* NULL: the parameters are the masters themselves */
    LearnerProgress progress;
    void *progress_user;
    Text files[LEARNER_FILES]; /* tokenizer and its like, published with every policy */
    bool sick; /* a step failed on a number and none has succeeded since */
};

/* A batch while it is trained: per-token arrays of all responses back to back. */
typedef struct LearnerBatch {
    const TrainSample *samples;
    size_t count, tokens, responses;
    size_t *at;          /* first response token of each sample in the arrays below */
    float *logp, *entropy, *old_logp, *ref_logp, *teacher_logp, *advantage, *dlogp, *dentropy;
    LossSample *loss;    /* views of the above */
    float **advantages;  /* [count] */
    float **dlogps, **dentropies;
    double *denominators;
    /* one pass */
    int32_t *packed, *starts;
    float *pass_logp, *pass_entropy, *pass_dlogp, *pass_dentropy;
    size_t pass_first, pass_end; /* samples of it */
    int pass_tokens;
} LearnerBatch;

/* ERR_NUMERIC names the first weight that is not finite. */
Err learner_weights_check(Learner *learner, Fault *fault);
/* Writes what is needed to see a numeric failure again. *dir is malloc'ed (NULL when even that
 * failed). */
void learner_dump(Learner *learner, int64_t step, const LearnerBatch *batch, const Fault *why,
                  char **dir);
/* Tokenizer files of load_dir into memory: the directory may be pruned while we run. */
Err learner_keep_files(Learner *learner, Fault *fault);
void learner_drop_files(Learner *learner);

#endif
