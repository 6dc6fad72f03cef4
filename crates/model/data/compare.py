"""Prints random small configurations of each model type, and how many numbers transformers stores.

    python compare.py SEED COUNT [TYPE...]
"""

import json, random, signal, sys

import observe
import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto


def nested(raw):
    return {key: nested(value) if isinstance(value, dict) else observe.plain(value) for key, value in raw.items()}


def main():
    signal.signal(signal.SIGALRM, observe.alarm)
    seed, count, wanted = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if not wanted:
        wanted = sorted({name for names in observe.LISTS for name in getattr(modeling_auto, names)})
    for model_type in wanted:
        rng = random.Random(f"{seed} {model_type}")
        which = next(names for names in reversed(observe.LISTS) if model_type in getattr(modeling_auto, names))
        name = getattr(modeling_auto, which)[model_type]
        made = 0
        for attempt in range(count * 6):
            try:
                signal.alarm(20)
                config_class = configuration_auto.CONFIG_MAPPING[model_type]
                model_class = getattr(transformers, name if isinstance(name, str) else name[0])
                raw = nested(observe.draw_whole(observe.Sampler(rng, [0.6, 0.3, 0][attempt % 3]), config_class))
                config = config_class(**json.loads(json.dumps(raw)))
                # Files of several modalities leave the key out where it is that of the language model.
                if isinstance(getattr(config, "tie_word_embeddings", None), bool):
                    raw["tie_word_embeddings"] = config.tie_word_embeddings
                with torch.device("meta"):
                    model = model_class(config)
                parameters = 0
                for row in observe.shapes(model):
                    for shape in row["tensors"].values():
                        product = 1
                        for dimension in shape:
                            product *= dimension
                        parameters += product
            except (Exception, observe.Timeout):
                continue
            finally:
                signal.alarm(0)
            print(json.dumps({"parameters": parameters, "config": {"model_type": model_type, **raw}}), flush=True)
            made += 1
            if made == count:
                break


if __name__ == "__main__":
    main()
