"""Builds small models of every type of transformers on the meta device, and records their shapes.

A configuration's numbers are integers that remember how they were computed (`Sym`). The code of
transformers computes with them, so each dimension that it asks for leads back to the keys of the
configuration. `observe.py TYPE... -o DIRECTORY` writes what it saw; `derive.py` makes the table.
"""

import builtins, copy, dataclasses, math, os, pickle, random, re, signal, sys, types, typing, warnings

warnings.filterwarnings("ignore")
os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import AutoConfig, PreTrainedModel
from transformers.configuration_utils import ALLOWED_LAYER_TYPES, PreTrainedConfig
from transformers.models.auto import configuration_auto, modeling_auto

REGISTRY: dict[int, set] = {}


def size(expr):
    return 1 + sum(size(part) for part in expr[1:]) if isinstance(expr, tuple) else 1


def make(value, expr):
    """Returns a number that remembers its expression."""
    if isinstance(value, bool):
        return value
    if size(expr) > 40:
        return value
    if isinstance(value, int):
        found = Sym(value)
        found.expr = expr
        known = REGISTRY.setdefault(int.__int__(value), set())
        if len(known) < 60:
            known.add(expr)
        return found
    found = SymFloat(value)
    found.expr = expr
    return found


def expr_of(value):
    return getattr(value, "expr", value)


def operation(symbol, plain, swapped=False):
    def apply(self, other):
        if not isinstance(other, (int, float)) or isinstance(other, bool):
            return NotImplemented
        kind = float if isinstance(other, float) or isinstance(self, float) else int
        a = float(self) if isinstance(self, float) else int.__int__(self)
        b = float(other) if isinstance(other, float) else int.__int__(other)
        a, b = (b, a) if swapped else (a, b)
        left, right = (expr_of(other), expr_of(self)) if swapped else (expr_of(self), expr_of(other))
        value = plain(a, b)
        if isinstance(value, complex):
            return value
        return make(value, (symbol, left, right))

    return apply


def arithmetic(cls):
    for symbol, name, plain in [
        ("+", "add", lambda a, b: a + b),
        ("-", "sub", lambda a, b: a - b),
        ("*", "mul", lambda a, b: a * b),
        ("//", "floordiv", lambda a, b: a // b),
        ("%", "mod", lambda a, b: a % b),
        ("/", "truediv", lambda a, b: a / b),
        ("^", "pow", lambda a, b: a**b),
    ]:
        setattr(cls, f"__{name}__", operation(symbol, plain))
        setattr(cls, f"__r{name}__", operation(symbol, plain, True))
    cls.__neg__ = lambda self: make(-plain_of(self), ("-", 0, expr_of(self)))
    cls.__deepcopy__ = lambda self, memo: self
    cls.__copy__ = lambda self: self
    return cls


def plain_of(value):
    return float(value) if isinstance(value, float) else int.__int__(value)


@arithmetic
class Sym(int):
    def __reduce__(self):
        return (int, (int.__int__(self),))


@arithmetic
class SymFloat(float):
    def __ceil__(self):
        return make(math.ceil(float(self)), ("ceil", expr_of(self)))

    def __floor__(self):
        return make(math.floor(float(self)), ("floor", expr_of(self)))

    def __round__(self, digits=None):
        return make(round(float(self)), ("round", expr_of(self))) if digits is None else round(float(self), digits)

    def __reduce__(self):
        return (float, (float(self),))


class AnyInt(type):
    def __instancecheck__(cls, value):
        return isinstance(value, builtins.int)

    def __subclasscheck__(cls, other):
        return builtins.issubclass(other, builtins.int)


class TracedInt(builtins.int, metaclass=AnyInt):
    """Stands for `int` in the modules of transformers, and keeps the expression."""

    def __new__(cls, value=0, *rest):
        if isinstance(value, Sym):
            return value
        if isinstance(value, SymFloat):
            return make(builtins.int(float(value)), ("floor", expr_of(value)))
        return builtins.int(value, *rest)


def traced_max(*values, **rest):
    return extreme(builtins.max, "max", values, rest)


def traced_min(*values, **rest):
    return extreme(builtins.min, "min", values, rest)


def extreme(plain, name, values, rest):
    if len(values) == 2 and not rest and any(isinstance(v, (Sym, SymFloat)) for v in values):
        return make(plain(*map(plain_of, values)), (name, *map(expr_of, values)))
    return plain(*values, **rest)


def traced_len(values):
    return getattr(values, "length", None) or builtins.len(values)


def trace_modules():
    """Lets the modules of models use the traced `int`, `max` and `min`."""
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models.") and ("modeling_" in name or "configuration_" in name):
            if "int" not in module.__dict__:
                module.__dict__.update(int=TracedInt, max=traced_max, min=traced_min)


COUNT = re.compile(r"(num_.*layers|^n_layers?$|^depth$|^num_layers$|num_blocks|encoder_depth|layer_count)")
SKIPPED = re.compile(
    r"token_id|token_index|dropout|eps$|initializer|_range$|dtype|chunk_size_feed|^num_labels|"
    r"theta|alpha$|coef|scaling|transformers_version|_prob$|_rate$|output_|use_cache|is_encoder_decoder|pad_|"
    r"^architectures|problem_type|return_dict|tokenizer|rope_|^id2label|^label2id|activation|hidden_act|"
    r"attn_implementation|per_layer_config|^gradient|^do_|^is_decoder"
)
KEPT_STRINGS = ["full_attention", "sliding_attention", "linear_attention", "chunked_attention", "conv", "moe",
                "hybrid", "sparse", "dense", "mamba", "attention", "mlp", "recurrent"]


class Mapped(str):
    """The path of a configuration: `path + key` is the name under which its class keeps the key."""

    def __new__(cls, path, names):
        found = super().__new__(cls, path)
        found.names = names
        return found

    def __add__(self, key):
        return str.__add__(self, self.names.get(key, key))


class Sampler:
    """Draws values for the keys of a configuration class, near its defaults."""

    def __init__(self, rng, calm, layers=(1, 2, 3, 4, 5, 6, 7)):
        self.rng, self.calm, self.layers = rng, calm, layers
        # Classes that check their keys against each other bear few changes at once.
        self.kept = 0.93 if calm == 0 else 0

    def change(self, often=0.5):
        return self.rng.random() < often * (self.calm or 1)

    def keeps(self):
        return self.rng.random() < self.kept

    def draw(self, cls, path=""):
        """Returns keyword arguments with traced numbers, and the plain ones."""
        raw = {}
        if not dataclasses.is_dataclass(cls):
            return raw
        source = class_source(cls)
        mapped = Mapped(path, getattr(cls, "attribute_map", None) or {})
        path = mapped
        layers = None
        for field in dataclasses.fields(cls):
            if field.name.startswith("_") or SKIPPED.search(field.name) or field.name in (cls.sub_configs or {}):
                continue
            default = field.default
            if default is dataclasses.MISSING:
                default = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
            if not COUNT.search(field.name):
                continue
            if isinstance(default, int) and not isinstance(default, bool) and not self.keeps():
                layers = self.rng.choice(self.layers) if default > 1 else default
                raw[field.name] = make(layers, path + field.name)
        main = next((raw[k] for k in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth") if k in raw), layers)
        for field in dataclasses.fields(cls):
            name = field.name
            if name.startswith("_") or SKIPPED.search(name) or name in raw or name in (cls.sub_configs or {}):
                continue
            default = field.default
            if default is dataclasses.MISSING:
                default = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
            kind = str(field.type)
            value = KEEP if self.keeps() else self.value(name, default, kind, main)
            if value is not KEEP:
                raw[name] = trace(value, path + name)
        read = set(re.findall(r"kwargs\.(?:get|pop)\(\s*[\"'](\w+)[\"']", source))
        for name in sorted(read):
            if not SKIPPED.search(name) and name not in raw and self.change(0.4) and not self.keeps():
                if name == "hybrid_override_pattern":
                    raw[name] = "".join(self.rng.choice("M*-E") for _ in range(main or self.rng.choice(self.layers)))
                elif re.search(r"pattern|interval|period|step|freq|every", name):
                    raw[name] = trace(self.rng.choice([1, 2, 3, 4]), path + name)
                elif re.search(r"idxs|indices|_layers$", name) and main:
                    raw[name] = sorted(i for i in range(main) if self.rng.random() < 0.5)
        for name, default in read_beside(cls):
            if name in raw or SKIPPED.search(name) or hasattr(cls, name) or not self.change(0.45) or self.keeps():
                continue
            if default in ("True", "False", "has"):
                raw[name] = self.rng.random() < 0.5
            elif re.search(r"dim|size|rank|width", name):
                raw[name] = trace(self.rng.choice([32, 64, 96, 160]), path + name)
            elif re.search(r"num_|n_", name) and (default is None or default.isdigit()):
                raw[name] = trace(self.rng.choice([1, 2, 4]), path + name)
        return {(getattr(cls, "attribute_map", None) or {}).get(name, name): value for name, value in raw.items()}

    def value(self, name, default, kind, layers):
        rng = self.rng
        if isinstance(default, bool) or (default is None and "bool" in kind):
            return rng.random() < 0.5 if self.change(0.5) else KEEP
        if isinstance(default, float):
            return default * rng.choice([1, 2, 0.5]) if self.change(0.4) else default
        if isinstance(default, str) and not ("list" in kind and default.strip("M*-E|") == ""):
            return KEEP
        if isinstance(default, (list, tuple)) or (default is None and "list" in kind and "int" not in kind):
            return self.list(name, default, layers)
        if default is None and "list" in kind:
            if self.change(0.5) and re.search(r"idx|indices|layers|indexes", name) and layers:
                return sorted(i for i in range(layers) if rng.random() < 0.5)
            if "int |" not in kind and not kind.startswith("int"):
                return KEEP
        if default is None:
            if "int" in kind and self.change(0.7 if "key_value" in name or "kv_heads" in name else 0.35):
                if re.search(r"step|interval|period|freq|pattern", name):
                    return rng.choice([1, 2, 3])
                return rng.choice([2, 4, 8] if re.search(r"num|heads|group", name) else [64, 96, 128, 192])
            return KEEP
        if isinstance(default, int):
            if "None" in kind and self.change(0.2):
                return None
            if re.search(r"first_k|replace|step|interval|period|offset|freq|start|end|shared_layers|dense_layers|max_window", name):
                return rng.choice([0, 1, 1, 2, 2, 3, 4, 5]) if self.change(0.9) else default
            if re.search(r"expert", name) and not re.search(r"per_tok|topk|top_k|size|dim|shared", name):
                return rng.choice([default, 4, 8, 12]) if default <= 8 else rng.choice([8, 16, 24])
            if re.search(r"per_tok|topk|top_k|n_group", name):
                return KEEP if default <= 8 else 2
            if not self.change(0.45):
                return default
            if "channel" in name and default < 5:
                return rng.choice([1, 2, 3, 4])
            if default == 0:
                return rng.choice([0, 0, 1, 64])
            if default <= 2:
                return rng.choice([default, 1, 2])
            if default < 16:
                return default * rng.choice([1, 2]) if default % 2 == 0 else default
            factor = rng.choice([2, 3, 0.5, 5])
            return int(default * factor) if default % 4 == 0 else default + rng.choice([0, 1, 7])
        return KEEP

    def list(self, name, default, layers):
        rng = self.rng
        if default and isinstance(default[0], str) and len(default) < 12 and not re.search("layer|block|type", name):
            return KEEP
        if re.search(r"type|block", name) and (default is None or (default and isinstance(default[0], str))):
            if layers and self.change(0.6):
                known = sorted(set(default or [])) or KEPT_STRINGS
                if len(known) < 2:
                    known = KEPT_STRINGS
                few = rng.sample(known, min(2, len(known)))
                return [rng.choice(few) for _ in range(layers)]
            return default[:layers] if default and layers and len(default) > layers else KEEP
        if default and isinstance(default[0], int) and not isinstance(default[0], bool):
            if len(default) > 8 and layers:
                return [value * rng.choice([1, 2]) for value in default[:layers]]
            if re.search(r"idx|indices|_layers|indexes", name) and layers:
                return sorted(i for i in range(layers) if rng.random() < 0.5)
        return KEEP


KEEP = object()


def read_beside(cls):
    """Returns the keys that the code of the models reads although the class does not declare them."""
    module = sys.modules.get(cls.__module__.replace(".configuration_", ".modeling_"))
    if module is None:
        return []
    if module.__name__ not in BESIDE:
        import inspect

        source = inspect.getsource(module)
        found = re.findall(r"getattr\(\s*(?:self\.)?(?:text_|vision_)?config,\s*[\"'](\w+)[\"'](?:,\s*([\w.]+))?", source)
        found += [(name, "has") for name in re.findall(r"hasattr\(\s*(?:self\.)?config,\s*[\"'](\w+)[\"']", source)]
        BESIDE[module.__name__] = sorted({(name, default or None) for name, default in found}, key=str)
    return BESIDE[module.__name__]


BESIDE: dict[str, list] = {}


def trace(value, path):
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return make(plain_of(value), path)
    return value


def class_source(cls):
    import inspect

    found = ""
    for base in cls.__mro__:
        if base is PreTrainedConfig:
            break
        try:
            found += inspect.getsource(base)
        except (OSError, TypeError):
            pass
    return found


def nested_classes(cls):
    """Returns the classes of the nested configurations by key."""
    found = {}
    for key, spec in (cls.sub_configs_defaults or {}).items():
        if spec.model_type is not None and spec.config_class is AutoConfig:
            found[key] = configuration_auto.CONFIG_MAPPING[spec.model_type]
        elif spec.config_class is not AutoConfig:
            found[key] = spec.config_class
    return found


def draw_all(sampler, cls, path="", depth=0):
    raw = sampler.draw(cls, path)
    if depth < 3:
        for key, nested in nested_classes(cls).items():
            if getattr(nested, "model_type", None) and issubclass(nested, PreTrainedConfig):
                inner = draw_all(sampler, nested, f"{path}{key}.", depth + 1)
                inner["model_type"] = nested.model_type
                raw[key] = inner
    return raw


def draw_whole(sampler, cls):
    """Draws a whole configuration. Whether the output is tied varies in most of them, whatever else the
    class bears and whether or not it declares the key."""
    raw = draw_all(sampler, cls)
    if sampler.rng.random() < 0.7:
        raw["tie_word_embeddings"] = sampler.rng.random() < 0.5
    return raw


def configs_of(config, path="", depth=0):
    """Yields each configuration within a configuration, with its path."""
    yield path, config
    if depth < 3:
        for name, value in list(vars(config).items()):
            if isinstance(value, PreTrainedConfig) and not name.startswith("_"):
                yield from configs_of(value, f"{path}{name}.", depth + 1)


def environment(config):
    """Returns the values of a configuration's keys, for rules: plain, flat, without nested ones."""
    found = {}
    for name, value in vars(config).items():
        if name.startswith("_") or isinstance(value, PreTrainedConfig):
            continue
        if re.search(r"^architectures|transformers_version|id2label|label2id|dtype", name):
            continue
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, (int, float, str, list, type(None))) and not re.search("rope|theta|factor", f"{name}{key}"):
                    found[f"{name}.{key}"] = inner
        elif isinstance(value, (int, float, str, type(None))):
            found[name] = value
        elif isinstance(value, (list, tuple)) and len(value) <= 64:
            if all(isinstance(item, (int, float, str, bool, type(None))) for item in value):
                found[name] = list(value)
            elif all(isinstance(item, (list, tuple)) for item in value):
                found[name] = [list(item) for item in value]
    return found


def leaf(config, path):
    """Replaces the numbers of a configuration by traced ones that are named by their keys."""
    for name, value in list(vars(config).items()):
        if name.startswith("_") or isinstance(value, bool):
            continue
        try:
            if isinstance(value, (int, float)):
                config.__dict__[name] = make(plain_of(value), path + name)
            elif isinstance(value, list) and value and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value):
                config.__dict__[name] = [make(plain_of(v), ("at", path + name, i)) for i, v in enumerate(value)]
            elif isinstance(value, dict) and "rope" not in name:
                for key, inner in value.items():
                    if isinstance(inner, (int, float)) and not isinstance(inner, bool):
                        value[key] = make(plain_of(inner), f"{path}{name}.{key}")
        except TypeError:
            pass


def plain(value):
    """Returns a value without traces, and the expressions beside it."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return plain_of(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return None


def flat_raw(raw, path=""):
    found = {}
    for key, value in raw.items():
        if isinstance(value, dict):
            found.update(flat_raw(value, f"{path}{key}."))
        else:
            found[path + key] = plain(value)
    return found


class Timeout(Exception):
    pass


def alarm(*_):
    raise Timeout()


def recomputed(module):
    """Returns the names of buffers that `_init_weights` computes anew: files need not hold them."""
    name = type(module).__module__
    if name not in RECOMPUTED:
        import inspect

        source = inspect.getsource(sys.modules[name]) if ".modeling_" in name else ""
        RECOMPUTED[name] = set(re.findall(r"init\.copy_\(\s*module\.(\w+)", source))
    return RECOMPUTED[name]


RECOMPUTED: dict[str, set] = {}


def shapes(model):
    """Returns the stored tensors of each model within the model: own ones, and the parts."""
    paths = {id(config): path for path, config in configs_of(model.config)}
    parts = {"": model}
    for name, module in model.named_modules():
        if isinstance(module, PreTrainedModel) and name and id(module.config) in paths and not re.search(r"(^|\.)\d+(\.|$)", name):
            parts[name] = module
    tied = set()
    for name, module in parts.items():
        for key in getattr(module, "all_tied_weights_keys", {}) or {}:
            tied.add(f"{name}.{key}" if name else key)
    rows = {name: {} for name in parts}
    seen = {}
    for name, module in model.named_modules(remove_duplicate=True):
        own = [(key, value) for key, value in module._parameters.items() if value is not None]
        own += [(key, value) for key, value in module._buffers.items()
                if value is not None and key not in module._non_persistent_buffers_set | recomputed(module)]
        for key, value in own:
            full = f"{name}.{key}" if name else key
            if id(value) in seen or full in tied:
                continue
            seen[id(value)] = full
            owner = max((part for part in parts if not part or full.startswith(part + ".")), key=len)
            rows[owner][full[len(owner) + 1 if owner else 0:]] = tuple(value.shape)
    found = []
    for name, module in parts.items():
        parent = max((p for p in parts if p != name and (not p or name.startswith(p + "."))), key=len, default=None) if name else None
        found.append({
            "name": name, "parent": parent, "class": type(module).__name__, "config": paths[id(module.config)],
            "config_class": type(module.config).__name__, "tensors": rows[name],
            "model_type": getattr(module.config, "model_type", ""),
        })
    return found


def sample(model_class, config_class, rng, calm):
    trace_modules()
    REGISTRY.clear()
    raw = draw_whole(Sampler(rng, calm), config_class)
    given = flat_raw(raw)
    config = config_class(**raw)
    effective, derived = {}, {}
    for path, inner in configs_of(config):
        for key, value in environment(inner).items():
            effective[path + key] = plain(value)
            if isinstance(value, (Sym, SymFloat)) and expr_of(value) != path + key:
                derived[path + key] = expr_of(value)
    REGISTRY.clear()
    for path, inner in configs_of(config):
        leaf(inner, path)
    with torch.device("meta"):
        model = model_class(config)
    rows = shapes(model)
    wanted = {d for row in rows for shape in row["tensors"].values() for d in shape}
    wanted |= set(range(0, 65))
    known = {value: exprs for value, exprs in REGISTRY.items() if value in wanted}
    types = {path: getattr(inner, "model_type", "") for path, inner in configs_of(config)}
    classes = {path: type(inner).__name__ for path, inner in configs_of(config)}
    return {"given": given, "effective": effective, "derived": derived, "rows": rows, "known": known,
            "types": types, "classes": classes}


def configurations(config_class, count, seed=3):
    """Returns configurations of many layers as samples have them; no model is built from them."""
    found, rng = [], random.Random(seed)
    for attempt in range(count * 4):
        REGISTRY.clear()
        try:
            calm = [1, 0.5, 0.2, 0][attempt % 4]
            raw = draw_all(Sampler(rng, calm, (7, 9, 12, 16, 17, 24, 30)), config_class)
            config = config_class(**raw)
            effective, derived = {}, {}
            for key, value in environment(config).items():
                effective[key] = plain(value)
                if isinstance(value, (Sym, SymFloat)) and expr_of(value) != key:
                    derived[key] = expr_of(value)
            found.append((flat_raw(raw), effective, derived, ""))
        except Exception:
            continue
        if len(found) == count:
            break
    return found


def defaults_only(config_class):
    """Returns the values of a configuration when nothing is given."""
    try:
        config = config_class()
    except Exception as error:  # A class without defaults.
        return None
    return {path + key: plain(value) for path, inner in configs_of(config) for key, value in environment(inner).items()}


def observe(model_type, which, count, seed=1):
    config_class = configuration_auto.CONFIG_MAPPING[model_type]
    if model_type in LACKING:
        name, key, value = LACKING[model_type]
        setattr(getattr(sys.modules[config_class.__module__], name), key, value)
    names = getattr(modeling_auto, which)[model_type]
    name = names if isinstance(names, str) else names[0]
    model_class = getattr(transformers, name)
    rng, samples, errors, tries = random.Random(seed), [], [], 0
    while len(samples) < count and tries < count * 5:
        tries += 1
        calm = [1, 0.6, 0.2, 0, 0][min(4, (tries - 1) // count)] if len(samples) * 2 < tries else 1
        calm = calm if tries % 7 else 0.2
        try:
            signal.alarm(20)
            samples.append(sample(model_class, config_class, rng, calm))
        except Timeout:
            errors.append("timeout")
            if errors.count("timeout") > 2:
                break
        except Exception as error:
            errors.append(f"{type(error).__name__}: {str(error)[:200]}")
        finally:
            signal.alarm(0)
    return {"type": model_type, "class": model_class.__name__, "config_class": config_class.__name__,
            "attribute_map": dict(getattr(config_class, "attribute_map", {}) or {}),
            "defaults": defaults_only(config_class), "samples": samples, "errors": errors, "tries": tries,
            "version": transformers.__version__}


LISTS = ["MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
         "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES"]

# Keys that the code reads and the class lacks; published configurations have them.
LACKING = {"dbrx": ("DbrxAttentionConfig", "rope_theta", 10000.0)}

if __name__ == "__main__":
    signal.signal(signal.SIGALRM, alarm)
    arguments = sys.argv[1:]
    directory = arguments.pop()
    count = int(arguments.pop())
    wanted = arguments
    if wanted == ["all"]:
        wanted = sorted({name for names in LISTS for name in getattr(modeling_auto, names)})
    os.makedirs(directory, exist_ok=True)
    for model_type in wanted:
        path = f"{directory}/{model_type}.pickle"
        if os.path.exists(path):
            continue
        # A type of several modalities has its whole model in the later lists.
        which = next((names for names in reversed(LISTS) if model_type in getattr(modeling_auto, names)), LISTS[0])
        try:
            found = observe(model_type, which, count)
        except Exception as error:
            found = {"type": model_type, "class": None, "samples": [], "errors": [f"{type(error).__name__}: {error}"], "tries": 0}
        with open(path, "wb") as file:
            pickle.dump(found, file)
        print(model_type, found["class"], len(found["samples"]), found["tries"], found["errors"][-1:], flush=True)
