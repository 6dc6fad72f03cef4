"""Makes the table of architectures from what `observe.py` saw.

    python observe.py all 40 DIRECTORY      # builds models, on the meta device
    python derive.py DIRECTORY > architectures.txt

A dimension is the shortest expression over keys that fits every model that was seen. Whether a layer
has a tensor is a decision tree over the keys and the number of the layer, written as a condition.
The same observations give the same table.
"""

import collections, glob, json, math, pickle, re, sys

REMAP = {"mamba": "linear_attention", "attention": "full_attention",
         "deepseek_sparse_attention": "indexed_attention", "qwen_sparse_attention": "indexed_attention"}
PRECEDENCE = {"+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5, "^": 6}


def leaves(expr):
    if isinstance(expr, str):
        return {expr}
    if isinstance(expr, tuple):
        return {expr[1]} if expr[0] in ("at", "len") else set().union(*[leaves(part) for part in expr[1:]])
    return set()


def size(expr):
    return 1 + sum(size(part) for part in expr[1:]) if isinstance(expr, tuple) else 1


def rebase(expr, path):
    """Makes the keys of an expression relative to a nested configuration; `None` if it uses others."""
    if isinstance(expr, str):
        return expr[len(path):] if expr.startswith(path) else None
    if isinstance(expr, tuple):
        if expr[0] == "at":
            key = rebase(expr[1], path)
            return key and ("at", key)
        parts = [rebase(part, path) for part in expr[1:]]
        return None if any(part is None for part in parts) else (expr[0], *parts)
    return expr


def evaluate(expr, env, i):
    if isinstance(expr, str):
        value = env.get(expr)
        return value if not isinstance(value, (list, str)) else None
    if not isinstance(expr, tuple):
        return expr
    if expr[0] == "at":
        value = env.get(expr[1])
        if isinstance(value, list):
            return value[i] if i is not None and i < len(value) else None
        return value
    if expr[0] == "len":
        value = env.get(expr[1])
        return len(value) if isinstance(value, list) else None
    parts = [evaluate(part, env, i) for part in expr[1:]]
    if any(not isinstance(part, (int, float)) for part in parts):
        return None
    try:
        a, b = parts[0], parts[-1]
        return {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "//": lambda: a // b,
            "%": lambda: a % b, "^": lambda: a**b, "max": lambda: max(a, b), "min": lambda: min(a, b),
            "ceil": lambda: math.ceil(a), "floor": lambda: math.floor(a), "round": lambda: round(a),
        }[expr[0]]()
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


def text(expr, outer=0):
    if isinstance(expr, str):
        return expr
    if not isinstance(expr, tuple):
        return repr(expr)
    if expr[0] == "at":
        return f"at({expr[1]})"
    if expr[0] in ("len", "max", "min", "ceil", "floor", "round"):
        return f"{expr[0]}({','.join(text(part) for part in expr[1:])})"
    mine = PRECEDENCE[expr[0]]
    written = f"{text(expr[1], mine)}{expr[0]}{text(expr[2], mine + 1)}"
    return f"({written})" if mine < outer else written


# Conditions: atoms over the keys (`env`), the number of the layer `i` and of layers `n`.


def holds(atom, env, i, n):
    kind, key = atom[0], atom[1]
    value = env.get(key)
    number = value if isinstance(value, (int, float)) else None
    if kind == "is":
        return bool(value) and value is not False
    if kind == "null":
        return value is None
    if kind == "=":
        return value == atom[2]
    if kind == ">":
        return number is not None and number > atom[2]
    if kind == "==":
        other = env.get(atom[2])
        return value is not None and value == other
    if kind == ">>":
        other = env.get(atom[2])
        return number is not None and isinstance(other, (int, float)) and number > other
    if i is None:
        return False
    if kind == "i=":
        return i == atom[2]
    if kind == "i%":
        return i % atom[2] == 0
    if kind == "i+1%":
        return (i + 1) % atom[2] == 0
    if kind == "last":
        return i == n - 1
    if kind == "<":
        return number is not None and i < number
    if kind == "<=":
        return number is not None and i <= number
    if kind == "n>":
        return number is not None and n > number
    if kind == ">=n":
        return number is not None and i >= n - number
    if kind == "%1":
        return bool(number) and (i + 1) % number == 0
    if kind == "%0":
        return bool(number) and i % number == 0
    if kind == "%o":
        other = env.get(atom[2])
        return bool(number) and isinstance(other, int) and i % number == other
    if kind == "in":
        return isinstance(value, list) and i in value
    if kind == "in1":
        return isinstance(value, list) and i + 1 in value
    if kind == "at":
        return isinstance(value, list) and i < len(value) and bool(value[i])
    if kind == "at=":
        return isinstance(value, (list, str)) and i < len(value) and value[i] == atom[2]
    if kind == "cycle":
        return isinstance(value, (list, str)) and bool(value) and value[i % len(value)] == atom[2]
    raise ValueError(kind)


def written(atom, yes):
    kind, key, rest = atom[0], atom[1], atom[2:]
    quoted = lambda v: f"'{v}'" if isinstance(v, str) else ("true" if v is True else "false" if v is False else repr(v))
    plain = {
        "is": lambda: key, "null": lambda: f"null({key})", "=": lambda: f"{key}=={quoted(rest[0])}",
        ">": lambda: f"{key}>{rest[0]}", "==": lambda: f"{key}=={rest[0]}", ">>": lambda: f"{key}>{rest[0]}",
        "i=": lambda: f"i=={rest[0]}", "i%": lambda: f"i%{rest[0]}==0", "i+1%": lambda: f"(i+1)%{rest[0]}==0", "last": lambda: "i==n-1",
        "<": lambda: f"i<{key}", "<=": lambda: f"i<={key}", "n>": lambda: f"n>{key}", ">=n": lambda: f"i>=n-{key}",
        "%1": lambda: f"(i+1)%{key}==0", "%0": lambda: f"i%{key}==0", "%o": lambda: f"i%{key}=={rest[0]}",
        "in": lambda: f"in({key},i)", "in1": lambda: f"in({key},i+1)", "at": lambda: f"at({key})",
        "at=": lambda: f"at({key})=={quoted(rest[0])}", "cycle": lambda: f"cycle({key})=={quoted(rest[0])}",
    }[kind]()
    if yes:
        return plain
    if "==" in plain:
        return plain.replace("==", "!=")
    return f"!({plain})" if any(c in plain for c in "<>") else f"!{plain}"


STRUCTURAL = re.compile(r"step|interval|period|freq|pattern|every|first|replace|offset|start|end|shared|cross|layer|dense|moe|sparse|parallel")
WIDTH = re.compile(r"size|dim|heads|experts|width|vocab|group|intermediate|topk|_k$")


def atoms_for(points, skip=()):
    """Returns the atoms that differ among points (env, i, n)."""
    envs = list({id(env): env for env, _, _ in points}.values())
    layered = any(i is not None for _, i, _ in points)
    keys = sorted(set().union(*[env.keys() for env in envs]) - set(skip)) if envs else []
    found, late = [], []
    for key in keys:
        values = [env.get(key) for env in envs]
        kinds = {type(value) for value in values}
        if kinds <= {list, str, type(None)} and layered:
            lists = [value for value in values if value]
            if any(isinstance(value, str) and value.strip("M*-E|") for value in lists):
                lists = []
            items = {item for value in lists for item in value if isinstance(item, (str, int, bool))}
            if lists and all(isinstance(item, str) for item in items):
                for item in sorted(items)[:16]:
                    found.append(("at=", key, item))
                    if any(isinstance(value, list) and len(value) < 4 for value in lists):
                        found.append(("cycle", key, item))
            elif items and list in kinds:
                found += [("in", key), ("in1", key), ("at", key)]
        changed = any(value != values[0] for value in values)
        if not changed:
            if layered and isinstance(values[0], int) and not isinstance(values[0], bool) and 1 < values[0] < 16 and re.search(
                r"step|interval|period|freq|pattern|every|first|replace|offset|start|shared|cross", key):
                found += [("<", key), ("%1", key), ("%0", key)]
            continue
        flag = not layered or not STRUCTURAL.search(key) or any(isinstance(value, bool) for value in values)
        if flag or str in kinds:
            found.append(("is", key))
        else:
            late.append(("is", key))
        if type(None) in kinds and len(kinds) > 1:
            found.append(("null", key))
        if str in kinds:
            for item in sorted({value for value in values if isinstance(value, str)})[:10]:
                found.append(("=", key, item))
        numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
        if numbers:
            if len(set(numbers)) <= 6 and max(numbers) <= 8:
                found += [("=", key, number) for number in sorted(set(numbers))]
            found.append((">", key, 1))
            if layered and min(numbers) < 32 and STRUCTURAL.search(key) and not WIDTH.search(key):
                found += [("<", key), ("<=", key), (">=n", key), ("n>", key), ("%1", key), ("%0", key)]
                for other in keys:
                    if other != key and re.search("offset|start", other):
                        found.append(("%o", key, other))
    if layered:
        found += [("i=", "", 0), ("i=", "", 1), ("i%", "", 2), ("i%", "", 3), ("i%", "", 4), ("last", "")]
        found += [("i+1%", "", number) for number in (2, 3, 4, 5, 6, 8)]
    return found + late


def pairs_for(points):
    envs = list({id(env): env for env, _, _ in points}.values())
    keys = [key for key in sorted(set().union(*[env.keys() for env in envs]))
            if any(isinstance(env.get(key), int) and not isinstance(env.get(key), bool) for env in envs)
            and re.search("size|dim|rank|heads|width|channels|d_model", key)]
    return [(kind, a, b) for a in keys for b in keys if a != b for kind in ("==", ">>") if kind == ">>" or a < b][:1500]


class Learner:
    def __init__(self, points, skip=()):
        self.points = points
        self.vectors, self.known = {}, {}
        for atom in atoms_for(points, skip):
            self.add(atom)
        self.paired = False

    def add(self, atom):
        bits = 0
        for at, (env, i, n) in enumerate(self.points):
            if holds(atom, env, i, n):
                bits |= 1 << at
        if bits and bits != (1 << len(self.points)) - 1:
            self.vectors.setdefault(bits, atom)

    def learn(self, label, care=None):
        """Returns a condition for the points of a bit vector, or `None`."""
        return self.found(label, care)[0]

    def found(self, label, care=None):
        """Returns the same, and the points where the condition holds."""
        care = (1 << len(self.points)) - 1 if care is None else care
        key = (label & care, care)
        if key not in self.known:
            self.known[key] = self.search(*key)
        return self.known[key]

    def search(self, label, everything):
        if label == everything:
            return "1", (1 << len(self.points)) - 1
        if label == 0:
            return "0", 0
        for paired in (False, True):
            if paired and not self.paired:
                self.paired = True
                for atom in pairs_for(self.points):
                    self.add(atom)
            self.budget = 1500
            paths = self.tree(label, everything, 6)
            if paths is not None:
                of = {atom: bits for bits, atom in self.vectors.items()}
                where = 0
                for path in paths:
                    inside = (1 << len(self.points)) - 1
                    for atom, yes in path:
                        inside &= of[atom] if yes else ~of[atom]
                    where |= inside
                return "|".join("&".join(written(atom, yes) for atom, yes in path) for path in paths), where
        return None, 0

    def tree(self, label, within, depth):
        """Returns the paths to where the label holds."""
        label &= within
        if label == within:
            return [[]]
        if label == 0:
            return []
        self.budget -= 1
        if depth == 0 or self.budget < 0:
            return None
        total, positive = within.bit_count(), label.bit_count()

        def entropy(p, t):
            return 0 if p in (0, t) else -(p / t) * math.log2(p / t) - (1 - p / t) * math.log2(1 - p / t)

        ranked = []
        for bits, atom in self.vectors.items():
            inside = bits & within
            count = inside.bit_count()
            if count in (0, total):
                continue
            hits = (bits & label).bit_count()
            left = count * entropy(hits, count) + (total - count) * entropy(positive - hits, total - count)
            pure = hits in (0, count) or positive - hits in (0, total - count)
            ranked.append((round(left, 9) - (0.01 if pure else 0), PREFERENCE.get(atom[0], 5), len(atom[1]), atom, bits))
        ranked.sort(key=lambda item: item[:3])
        best = None
        for left, _, _, atom, bits in ranked[: 3 if depth > 2 else 2]:
            yes = self.tree(label, within & bits, depth - 1)
            no = self.tree(label, within & ~bits, depth - 1)
            if yes is None or no is None:
                continue
            paths = [[(atom, True), *path] for path in yes] + [[(atom, False), *path] for path in no]
            cost = sum(len(path) for path in paths)
            if best is None or cost < best[0]:
                best = (cost, paths)
            if left <= 0:
                break
        return None if best is None else best[1]


PREFERENCE = {"at=": 0, "is": 1, "<": 2, "%1": 2, "in": 2, "%o": 2, "=": 2, "%0": 3, "null": 3, "at": 3, "cycle": 3, "in1": 3,
              ">=n": 4, "<=": 4, "n>": 5, ">": 6, "i%": 5, "i+1%": 5, "i=": 5, "last": 6, "==": 7, ">>": 8}


def normal(env):
    """Returns an environment with today's names of layer types."""
    return {key: [REMAP.get(v, v) if isinstance(v, str) else v for v in value] if isinstance(value, list) and "type" in key else value
            for key, value in env.items()}


class Row:
    """What was seen of one class of models."""

    def __init__(self, name):
        self.name, self.seen, self.config_classes = name, [], collections.Counter()

    def add(self, sample, row, children):
        path = row["config"]
        env = normal({key[len(path):]: value for key, value in sample["effective"].items() if key.startswith(path)})
        if (env.get("num_kv_shared_layers") or 0) >= (env.get("num_hidden_layers") or 1):
            return  # More layers share keys than there are: no such model is published.
        tensors = {}
        for full, shape in row["tensors"].items():
            parts = full.split(".")
            numbers = tuple(int(part) for part in parts if part.isdigit())
            pattern = ".".join("*" if part.isdigit() else part for part in parts)
            tensors.setdefault(pattern, {})[numbers] = shape
        parts = {}
        for child in children:
            inside = child["config"][len(path):].rstrip(".") if child["config"].startswith(path) else None
            relative = child["name"][len(row["name"]) + 1 if row["name"] else 0:]
            parts[(relative, inside)] = (child["class"], child["model_type"])
        self.config_classes[row["config_class"]] += 1
        self.seen.append({"env": env, "tensors": tensors, "known": sample["known"], "path": path, "parts": parts})

    def candidates(self, seen, value):
        found = {value}
        for expr in seen["known"].get(value, ()):
            inside = rebase(expr, seen["path"])
            if inside is not None:
                found.add(inside)
        return found

    def fit(self, observations):
        """Returns an expression for each observation (seen, layer, value): as few as possible."""
        chosen, rest = [], list(range(len(observations)))
        answer = [None] * len(observations)
        while rest and len(chosen) < 6:
            options = set()
            # Candidates come from some of the models; all of them judge.
            for at in rest[:3] + rest[len(rest) // 2:][:2] + rest[-2:]:
                options |= self.candidates(*[observations[at][k] for k in (0, 2)])
            best = None
            for option in sorted(options, key=text):
                hits = [at for at in rest if evaluate(option, observations[at][0]["env"], observations[at][1]) == observations[at][2]]
                constant = not isinstance(option, (str, tuple))
                small = constant and option <= 4
                rank = (len(hits), small, not constant, -size(option), -len(text(option)))
                if hits and (best is None or rank > best[0]):
                    best = (rank, option, hits)
            if best is None:
                break
            chosen.append(best[1])
            for at in best[2]:
                answer[at] = best[1]
            rest = [at for at in rest if answer[at] is None]
        return answer

    def derive(self):
        """Returns the rules of the class, and what could not be derived."""
        doubts, out = [], []
        used = set()
        patterns = sorted(set().union(*[seen["tensors"].keys() for seen in self.seen])) if self.seen else []
        # The number of layers of each list.
        prefixes = sorted({pattern.split(".*")[0] for pattern in patterns if "*" in pattern})
        counts = {}
        for prefix in prefixes:
            observed = []
            for seen in self.seen:
                tops = [numbers[0] for pattern, cells in seen["tensors"].items() if "*" in pattern and pattern.split(".*")[0] == prefix for numbers in cells]
                observed.append(max(tops) + 1 if tops else 0)
            options = set()
            for seen, count in zip(self.seen, observed):
                if count:
                    options |= self.candidates(seen, count)
                    options |= {("len", key) for key, value in seen["env"].items() if isinstance(value, list) and len(value) == count}
            def misses(option):
                return sum(1 for seen, count in zip(self.seen, observed) if count and evaluate(option, seen["env"], None) != count)
            ranked = sorted(options, key=lambda o: (misses(o), not isinstance(o, str), size(o), len(text(o)), text(o)))
            if not ranked:
                continue
            if misses(ranked[0]):
                # Empty layers at the end have no tensor; the count is then larger.
                larger = [o for o in options if all((evaluate(o, s["env"], None) or 0) >= c for s, c in zip(self.seen, observed) if c)]
                larger.sort(key=lambda o: (misses(o), size(o), text(o)))
                if not larger:
                    doubts.append(f"count of {prefix}")
                ranked = larger or ranked
            counts[prefix] = ranked[0]
            used |= leaves(ranked[0])
        groups = collections.defaultdict(list)
        learners = {}
        for pattern in patterns:
            prefix = pattern.split(".*")[0] if "*" in pattern else None
            if prefix is not None and prefix not in counts:
                doubts.append(pattern)
                continue
            cells = []  # (seen index, layer, shape with inner counts)
            for at, seen in enumerate(self.seen):
                table = seen["tensors"].get(pattern, {})
                layers = collections.defaultdict(dict)
                for numbers, shape in table.items():
                    layers[numbers[0] if numbers else None][numbers[1:]] = shape
                for layer, inner in layers.items():
                    depth = pattern.count("*") - 1
                    shape = next(iter(inner.values()))
                    if any(other != shape for other in inner.values()):
                        doubts.append(f"{pattern}: shapes differ within a layer")
                    tops = tuple(max(numbers[d] for numbers in inner) + 1 for d in range(max(depth, 0)))
                    if math.prod(tops) != len(inner):
                        doubts.append(f"{pattern}: gaps within a layer")
                    cells.append((at, layer, tops + shape))
            lengths = collections.Counter(len(cell[2]) for cell in cells)
            exprs = [[] for _ in cells]
            for position in range(max(lengths)):
                present = [k for k, cell in enumerate(cells) if len(cell[2]) > position]
                fitted = self.fit([(self.seen[cells[k][0]], cells[k][1], cells[k][2][position]) for k in present])
                for k, expr in zip(present, fitted):
                    exprs[k].append(expr)
            variants = collections.Counter(tuple(e) for e in exprs)
            if any(None in variant for variant in variants):
                doubts.append(f"{pattern}: a dimension")
            if prefix not in learners:
                points = []
                for seen in self.seen:
                    if prefix is None:
                        points.append((seen["env"], None, None))
                    else:
                        n = evaluate(counts[prefix], seen["env"], None) or 0
                        n = int(n) if n < 200 else 0
                        points += [(seen["env"], i, n) for i in range(n)]
                index = {}
                for number, (env, i, _) in enumerate(points):
                    index[(id(env), i)] = number
                learners[prefix] = (Learner(points), index)
            learner, index = learners[prefix]
            whole = [variant for variant in variants if None not in variant]
            fits = []  # The variants that give the shape of each cell.
            for at, layer, shape in cells:
                env = self.seen[at]["env"]
                fits.append([v for v in whole if tuple(evaluate(e, env, layer) for e in v) == shape])
            # A variant that no cell needs for itself is left out.
            needed = {fit[0] for fit in fits if len(fit) == 1}
            whole = [variant for variant in whole if variant in needed] or whole[:1]
            taken = 0
            # Several variants may give the shape of a cell. The one with more keys is right there: that
            # others agree is chance, so their conditions must leave the cell out.
            for variant in sorted(whole, key=lambda v: -len(set().union(*map(leaves, v)))):
                label, care = 0, (1 << len(learner.points)) - 1
                for k, (at, layer, shape) in enumerate(cells):
                    number = index.get((id(self.seen[at]["env"]), layer))
                    if number is None:
                        doubts.append(f"{pattern}: beyond the layers")
                        continue
                    kept = [v for v in fits[k] if v in whole]
                    if kept == [variant]:
                        label |= 1 << number
                    elif variant in kept:
                        care &= ~(1 << number)
                twice = learner.found(label, care)[1] & taken & ~label
                label, care = label & ~twice, care | twice
                taken |= learner.found(label, care)[1]
                groups[(prefix, label, care)].append((pattern, variant))
        for (prefix, label, care), members in groups.items():
            condition = learners[prefix][0].learn(label, care)
            if condition is None:
                doubts += [f"{pattern}: when" for pattern, _ in members]
                condition = majority(label, learners[prefix][0])
            used |= keys_in(condition)
            by_shape = collections.defaultdict(list)
            for pattern, variant in members:
                stars = max(pattern.count("*") - 1, 0)
                shape = ",".join(text(e) for e in variant[stars:])
                inner = ",".join(text(e) for e in variant[:stars])
                for expr in variant:
                    used |= leaves(expr)
                by_shape[(shape, inner)].append(pattern)
            for (shape, inner), names in by_shape.items():
                rule = {"list": prefix, "when": condition, "shape": shape, "names": names, "inner": inner}
                out.append(rule)
        parts = []
        points = [(seen["env"], None, None) for seen in self.seen]
        learner = Learner(points)
        for part in sorted(set().union(*[seen["parts"].keys() for seen in self.seen]), key=str):
            label = sum(1 << at for at, seen in enumerate(self.seen) if part in seen["parts"])
            classes = collections.Counter(seen["parts"][part] for seen in self.seen if part in seen["parts"])
            condition = learner.learn(label)
            if condition is None:
                doubts.append(f"part {part[0]}")
                condition = "1"
            used |= keys_in(condition)
            parts.append({"prefix": part[0], "config": part[1] or "", "class": classes.most_common(1)[0][0][0], "when": condition})
        return {"counts": {k: text(v) for k, v in counts.items()}, "rules": out, "parts": parts}, sorted(set(doubts)), used


def majority(label, learner):
    return "1" if label.bit_count() * 2 >= len(learner.points) else "0"


class Class:
    """What was seen of one class of configurations."""

    def __init__(self):
        self.seen, self.used, self.types, self.nested, self.auto = [], set(), set(), {}, set()

    def add(self, sample, path):
        strip = lambda values: {key[len(path):]: value for key, value in values.items() if key.startswith(path)}
        self.seen.append((strip(sample["given"]), normal(strip(sample["effective"])), strip(sample["derived"]), path))
        self.types.add(sample["types"].get(path, ""))

    def defaults(self, keyword_defaults, plain, more):
        """Returns the default of each used key: a value, or an expression, or cases by layer."""
        # Classes of whole models may set defaults of nested configurations.
        alone = [seen for seen in self.seen if seen[3] == ""]
        self.seen = (alone or self.seen)[:60] + [(given, normal(effective), derived, path) for given, effective, derived, path in more]
        out, doubts = {}, []
        queue, done = sorted(self.used), set()
        while queue:
            key = queue.pop(0)
            if key in done:
                continue
            done.add(key)
            missing = [(given, effective, derived, path) for given, effective, derived, path in self.seen
                       if (key not in given or (isinstance(given[key], int) and given[key] < 0)) and key in effective]
            if not missing:
                if plain.get(key, keyword_defaults.get(key)) is not None:
                    out[key] = plain.get(key, keyword_defaults.get(key))
                continue
            values = {json.dumps(effective[key]) for _, effective, _, _ in missing}
            if len(values) == 1:
                value = json.loads(next(iter(values)))
                if value is not None:
                    out[key] = value
                continue
            exprs = collections.Counter()
            for given, effective, derived, path in missing:
                inside = rebase(derived[key], path) if key in derived else None
                exprs[inside] += 1
            expr = exprs.most_common(1)[0][0]
            if expr is not None:
                wrong = sum(1 for _, effective, _, _ in missing if evaluate(expr, effective, None) not in (effective[key], None))
                if wrong:
                    doubts.append(f"default of {key}: {wrong} of {len(missing)} differ")
                out[key] = {"is": text(expr)}
                queue += sorted(leaves(expr))
                continue
            lists = [effective[key] for _, effective, _, _ in missing if isinstance(effective[key], (list, str))]
            envs = [({**keyword_defaults, **effective, **{k: v for k, v in given.items() if k not in effective}}, effective[key])
                    for given, effective, _, _ in missing]
            if lists and all(isinstance(value, (list, str, type(None))) for _, value in envs):
                points = [(env, i, len(value)) for env, value in envs if value for i in range(len(value))]
                items = [value[i] for env, value in envs if value for i in range(len(value))]
                if not points or any(isinstance(item, list) for item in items):
                    continue
                learner = Learner(points, skip=(key,))
                indices = [value for _, value in envs if value]
                if all(isinstance(item, int) and not isinstance(item, bool) for item in items) and all(
                        value == sorted(set(value)) and value[0] >= 0 for value in indices) and set(items) - {0, 1}:
                    # A list of the numbers of layers: which layers are in it?
                    counts = [next((env[k] for k in COUNTS if isinstance(env.get(k), int)), 0) for env, _ in envs]
                    points = [(env, i, n) for (env, _), n in zip(envs, counts) for i in range(n)]
                    inside = [i in (value or []) for (_, value), n in zip(envs, counts) for i in range(n)]
                    condition = Learner(points, skip=(key,)).learn(sum(1 << at for at, yes in enumerate(inside) if yes))
                    if condition is None:
                        doubts.append(f"default of {key}")
                        continue
                    out[key] = {"indices": condition}
                    queue += sorted(keys_in(condition))
                    continue
                cases = []
                for item in sorted(set(items), key=lambda v: (items.count(v), str(v))):
                    label = sum(1 << at for at, other in enumerate(items) if other == item)
                    cases.append((learner.learn(label), item))
                if any(condition is None for condition, _ in cases):
                    doubts.append(f"default of {key}")
                    continue
                cases[-1] = ("1", cases[-1][1])
                out[key] = {"layers": cases}
            else:
                points = [(env, None, None) for env, _ in envs]
                learner = Learner(points, skip=(key,))
                cases = []
                for item in sorted({json.dumps(value) for _, value in envs}):
                    label = sum(1 << at for at, (_, value) in enumerate(envs) if json.dumps(value) == item)
                    cases.append((learner.learn(label), json.loads(item)))
                if len(cases) > 6 or any(condition is None for condition, _ in cases):
                    doubts.append(f"default of {key}")
                    continue
                cases[-1] = ("1", cases[-1][1])
                out[key] = {"cases": cases}
            for condition, _ in out[key].get("layers") or out[key].get("cases"):
                queue += sorted(keys_in(condition))
        return {key: value for key, value in sorted(out.items()) if value != []}, doubts


def keyword_defaults(config_class):
    import inspect
    import ast

    found = {}
    for base in getattr(config_class, "__mro__", []):
        if base.__name__ == "PreTrainedConfig":
            break
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            continue
        for key, literal in re.findall(r"kwargs\.(?:get|pop)\(\s*[\"'](\w+)[\"']\s*,\s*([^)\n]+?)\s*\)", source):
            try:
                found.setdefault(key, ast.literal_eval(literal))
            except (ValueError, SyntaxError):
                pass
    return found


STORED = {
    # Experts that compute nothing (`zero_expert_num`) have matrices in transformers, but none in files.
    ("LongcatFlashModel", "layers.*.mlp.experts.gate_up_proj"): "n_routed_experts,2*expert_ffn_hidden_size,hidden_size",
}

COUNTS = ["num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"]
ALWAYS = [
    # Keys that decide what a layer keeps, whether or not a shape depends on them.
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "intermediate_size", "max_position_embeddings", "n_positions", "max_seq_len", "sliding_window", "layer_types",
    "attention_chunk_size", "num_experts_per_tok", "moe_intermediate_size", "tie_word_embeddings", "num_kv_shared_layers",
    "n_layer", "n_head", "n_embd", "d_model", "n_heads", "n_layers", "index_head_dim", "index_topk", "global_head_dim",
    "num_global_key_value_heads", "attn_type_list", "layers_block_type", "block_types", "conv_L_cache", "kv_lora_rank",
    "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "attention_window_size", "num_local_experts", "num_experts",
    "n_routed_experts", "moe_k", "moe_topk", "num_experts_per_token", "top_k_experts", "moe_num_experts", "n_shared_experts",
    "first_k_dense_replace", "swa_head_dim", "swa_num_key_value_heads", "swa_num_attention_heads", "swa_v_head_dim", "use_sliding_window",
    "max_window_layers", "multi_query", "new_decoder_architecture", "num_kv_heads", "attn_layer_period", "attn_layer_offset",
    "lru_width", "conv1d_width", "mamba_expand", "mamba_d_state", "mamba_d_conv", "mamba_n_groups", "mamba_n_heads", "mamba_d_head",
    "mamba_d_ssm", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel", "state_size", "expand", "num_heads",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
    "hybrid_override_pattern", "full_attention_interval", "no_rope_layers", "moe_shared_expert_intermediate_size",
    "shared_expert_intermediate_size", "linear_attn_config.num_heads", "linear_attn_config.head_dim",
    "linear_attn_config.short_conv_kernel_size", "linear_attn_config.full_attn_layers", "attn_layer_indices", "full_attn_idxs",
    "attention_heads", "encoder_attention_heads", "decoder_attention_heads", "encoder_layers", "decoder_layers",
    "max_target_positions",
]
WORDS = re.compile(r"[a-z_A-Z][\w.]*")
FUNCTIONS = {"i", "n", "at", "in", "len", "cycle", "null", "max", "min", "ceil", "floor", "round", "true", "false"}


def keys_in(condition):
    return set(WORDS.findall(re.sub(r"'[^']*'", "", condition))) - FUNCTIONS


def plain_defaults(name):
    """Returns the class of a name, and the values of its keys when nothing is given."""
    import observe

    known = {cls.__name__: cls for cls in all_config_classes()}
    cls = known.get(name)
    if cls is None:
        return None, {}
    try:
        with observe.warnings.catch_warnings():
            config = cls()
        return cls, normal({key: observe.plain(value) for key, value in observe.environment(config).items()})
    except Exception:
        import dataclasses

        found = {}
        for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
            if field.default is not dataclasses.MISSING and isinstance(field.default, (int, float, str, bool, list)):
                found[field.name] = field.default
        return cls, found


def all_config_classes():
    from transformers.configuration_utils import PreTrainedConfig

    found, queue = [], [PreTrainedConfig]
    while queue:
        cls = queue.pop()
        found.append(cls)
        queue += cls.__subclasses__()
    return found


def main(directory):
    import observe
    import transformers
    from transformers import AutoConfig
    from transformers.models.auto import configuration_auto, modeling_auto

    rows, classes, types = {}, {}, {}
    seen_types = {}
    for path in sorted(glob.glob(f"{directory}/*.pickle")):
        with open(path, "rb") as file:
            seen = pickle.load(file)
        if len(seen["samples"]) < 10:
            reason = collections.Counter(seen["errors"]).most_common(1)
            types[seen["type"]] = {"unknown": re.sub(r"\s+", " ", reason[0][0] if reason else "no model")[:100]}
            continue
        types[seen["type"]] = {"model": seen["class"], "config": seen["config_class"]}
        configuration_auto.CONFIG_MAPPING[seen["type"]]
        for sample in seen["samples"]:
            for row in sample["rows"]:
                children = [child for child in sample["rows"] if child["parent"] == row["name"] and child is not row and child["name"]]
                rows.setdefault(row["class"], Row(row["class"])).add(sample, row, children)
                seen_types.setdefault(row["model_type"], collections.Counter())[(row["class"], row["config_class"])] += 1
            for inner, name in sample["classes"].items():
                classes.setdefault(name, Class()).add(sample, inner)
                classes[name].nested = {k[len(inner):-1]: v for k, v in sample["classes"].items()
                                        if k.startswith(inner) and k != inner and k[len(inner):].count(".") == 1}
    for model_type, counter in seen_types.items():
        base = modeling_auto.MODEL_MAPPING_NAMES.get(model_type)
        base = base if isinstance(base, str) else (base or [None])[0]
        own = [pair for pair in counter if pair[0] == base] or sorted(counter, key=lambda p: ("For" in p[0], -counter[p]))
        entry = types.setdefault(model_type, {})
        if "unknown" not in entry or "For" not in own[0][0]:
            entry.setdefault("config", own[0][1])
            entry["base"] = own[0][0]
    models = {}
    for name in sorted(rows):
        row = rows[name]
        row.seen = row.seen[:100]
        rules, doubts, used = row.derive()
        owner = row.config_classes.most_common(1)[0][0]
        rules["config"] = owner
        if doubts:
            rules["doubts"] = doubts[:8]
        models[name] = rules
        for key in used:
            inside, rest = owner, key
            while "." in rest and rest.split(".")[0] in getattr(classes[inside], "nested", {}):
                head, rest = rest.split(".", 1)
                inside = classes[inside].nested[head]
            classes[inside].used.add(rest)
        print(name, len(row.seen), len(rules["rules"]), doubts[:3], file=sys.stderr)
    lines = []
    for name in sorted(classes):
        seen = classes[name]
        print("config", name, file=sys.stderr)
        cls, plain = plain_defaults(name)
        ruled = set(seen.used)
        seen.used |= {key for key in ALWAYS if any(key in effective for _, effective, _, _ in seen.seen[:3])}
        defaults, doubts = seen.defaults(keyword_defaults(cls), plain, observe.configurations(cls, 24) if cls else [])
        entry = {"defaults": defaults}
        alias = {a: b for a, b in (getattr(cls, "attribute_map", None) or {}).items() if b in defaults or b in seen.used}
        if alias:
            entry["alias"] = dict(sorted(alias.items()))
        subs = {}
        for key, spec in (getattr(cls, "sub_configs_defaults", None) or {}).items():
            if key in getattr(seen, "nested", {}):
                subs[key] = seen.nested[key] if spec.config_class is not AutoConfig else f"*{spec.model_type or ''}"
        if subs:
            entry["subs"] = subs
        # What no shape depends on, and no cache.
        doubts = [doubt for doubt in doubts if doubt != "default of hidden_size" or "hidden_size" in ruled]
        if doubts:
            entry["doubts"] = doubts
            print("CONFIG", name, doubts, file=sys.stderr)
        lines.append(f"config {name} {compact(entry)}")
        for key, cls_name in subs.items():
            classes[name].auto = {k for k, v in subs.items() if v.startswith("*")}
    causal = {entry.get("model") for entry in types.values()}
    for name, rules in models.items():
        auto = getattr(classes[rules["config"]], "auto", set())
        parts = []
        for part in rules["parts"]:
            kind = part["class"]
            if part["config"] in auto:
                kind = "*causal" if kind in causal and kind.endswith("LM") else "*"
            parts.append([part["prefix"], part["config"], kind, part["when"]])
        entry = {"config": rules["config"]}
        if rules["counts"]:
            entry["counts"] = rules["counts"]
        listed = []
        for rule in rules["rules"]:
            cut = len(rule["list"]) + 3 if rule["list"] is not None else 0
            shape = STORED.get((name, rule["names"][0]), rule["shape"])
            listed.append([rule["list"] or "", rule["when"], shape, rule["inner"], " ".join(name[cut:] for name in rule["names"])])
        entry["rules"] = listed
        if parts:
            entry["parts"] = parts
        if rules.get("doubts"):
            entry["doubts"] = rules["doubts"]
        lines.append(f"model {name} {compact(entry)}")
    for name in sorted(filter(None, types)):
        lines.append(f"type {name} {compact(types[name])}")
    lines = filled(lines)
    print(f"# Made by derive.py from models of transformers {transformers.__version__}. Do not edit.")
    for line in lines:
        print(line)


def filled(lines):
    """Adds the plain defaults of keys that rules use and for which no default was seen."""
    split = [line.split(" ", 2) for line in lines]
    configs = {name: json.loads(entry) for kind, name, entry in split if kind == "config"}
    needed = collections.defaultdict(set)
    for kind, _, entry in split:
        if kind != "model":
            continue
        rules = json.loads(entry)
        texts = [*rules.get("counts", {}).values(), *(part[3] for part in rules.get("parts", []))]
        texts += [text for rule in rules["rules"] for text in rule[1:4]]
        for key in set().union(*[keys_in(text) for text in texts]):
            owner = rules["config"]
            while owner is not None and key.split(".")[0] in configs[owner].get("subs", {}):
                nested, key = key.split(".", 1)
                owner = configs[owner]["subs"][nested]
                owner = None if owner.startswith("*") else owner
            if owner is not None:
                needed[owner].add(key)
    out = []
    for kind, name, entry in split:
        missing = needed[name] - set(configs[name]["defaults"]) if kind == "config" else set()
        if missing:
            plain = plain_defaults(name)[1]
            configs[name]["defaults"].update({key: plain[key] for key in sorted(missing) if plain.get(key) not in (None, [])})
            configs[name]["defaults"] = dict(sorted(configs[name]["defaults"].items()))
            entry = compact(configs[name])
        out.append(f"{kind} {name} {entry}")
    return out


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


if __name__ == "__main__":
    main(sys.argv[1])
