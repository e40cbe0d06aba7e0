/* SPDX-License-Identifier: MIT */
#include "core/model.h"

#include <stdlib.h>

void plumb_model_free_lists(struct plumb_model *model)
{
	for (int l = 0; model->layer && l < model->cfg.layers; l++) {
		struct plumb_layer_weights *w = &model->layer[l];
		free(w->moe.gate);
		free(w->moe.up);
		free(w->moe.down);
		if (w->ple)
			free(w->ple->table);
		free(w->ple);
	}
	free(model->layer);
	model->layer = NULL;
}
