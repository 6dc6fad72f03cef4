//! The expressions of the table: arithmetic and conditions over keys of a configuration.
//!
//! `i` is the index of the layer and `n` the number of layers. An expression without a value (a
//! missing key, a division by zero, a number beyond 2^62) is null, and null is neither true nor
//! equal to a number.

use std::rc::Rc;

/// The maximum nesting depth of an expression.
const MAX_DEPTH: u32 = 24;
/// The largest number; the product of two fits `i128`.
const MAX: i128 = 1 << 62;

/// The value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::read::config) enum Value {
    Null,
    Integer(i128),
    Float(f64),
    Text(String),
    /// Shared, because each layer reads it.
    List(Rc<[Value]>),
}

impl Value {
    fn integer(value: i128) -> Value {
        if (-MAX..=MAX).contains(&value) { Value::Integer(value) } else { Value::Null }
    }

    /// Converts a JSON value. Objects become null.
    pub(in crate::read::config) fn of(json: &serde_json::Value) -> Value {
        use serde_json::Value as Json;
        match json {
            Json::Bool(flag) => Value::Integer(i128::from(*flag)),
            Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(value), ..) => Value::integer(i128::from(value)),
                (_, Some(value), _) => Value::integer(i128::from(value)),
                (.., Some(value)) if value.fract() == 0.0 && value.abs() < MAX as f64 => {
                    Value::Integer(value as i128)
                }
                (.., Some(value)) if value.is_finite() => Value::Float(value),
                _ => Value::Null,
            },
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(list) => Value::List(list.iter().map(Value::of).collect()),
            Json::Null | Json::Object(_) => Value::Null,
        }
    }

    /// Returns whether Python considers the value true.
    pub(in crate::read::config) fn is_true(&self) -> bool {
        match self {
            Value::Null => false,
            Value::Integer(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(list) => !list.is_empty(),
        }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Value::Integer(value) => Some(*value as f64),
            Value::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns an element of a list or a character of a string; any other value applies to all
    /// layers.
    fn entry(&self, at: i128, wraps: bool) -> Value {
        let index = |length: usize| -> Option<usize> {
            let at = usize::try_from(at).ok()?;
            if wraps { at.checked_rem(length) } else { Some(at) }
        };
        match self {
            Value::List(list) => {
                index(list.len()).and_then(|at| list.get(at)).cloned().unwrap_or(Value::Null)
            }
            Value::Text(text) => {
                let letter = index(text.len()).and_then(|at| text.as_bytes().get(at));
                letter.map_or(Value::Null, |byte| Value::Text(char::from(*byte).to_string()))
            }
            other => other.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::read::config) enum Expression {
    Constant(Value),
    Key(String),
    Layer,
    Layers,
    Not(Box<Expression>),
    Pair(Operator, Box<Expression>, Box<Expression>),
    Call(Function, Vec<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read::config) enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
    Add,
    Subtract,
    Multiply,
    Divide,
    DivideWhole,
    Remainder,
    Power,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read::config) enum Function {
    /// The element of a list for this layer.
    At,
    /// The same for a list that repeats.
    Cycle,
    /// Whether a list contains a number.
    In,
    Length,
    IsNull,
    Max,
    Min,
    Ceiling,
    Floor,
    Round,
}

/// The operators by precedence, loosest first; longer operators before their prefixes.
const LEVELS: [&[(&str, Operator)]; 6] = [
    &[("|", Operator::Or)],
    &[("&", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<=", Operator::AtMost),
        (">=", Operator::AtLeast),
        ("<", Operator::Less),
        (">", Operator::More),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[
        ("*", Operator::Multiply),
        ("//", Operator::DivideWhole),
        ("/", Operator::Divide),
        ("%", Operator::Remainder),
    ],
    &[("^", Operator::Power)],
];

const FUNCTIONS: [(&str, Function); 10] = [
    ("at", Function::At),
    ("cycle", Function::Cycle),
    ("in", Function::In),
    ("len", Function::Length),
    ("null", Function::IsNull),
    ("max", Function::Max),
    ("min", Function::Min),
    ("ceil", Function::Ceiling),
    ("floor", Function::Floor),
    ("round", Function::Round),
];

/// An expression of the table cannot be parsed, which is an error in the table.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::read::config) struct Malformed;

struct Parser<'a> {
    rest: &'a str,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn level(&mut self, level: usize) -> Result<Expression, Malformed> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        while let Some((token, operator)) =
            operators.iter().find(|(token, _)| self.rest.starts_with(token))
        {
            self.take(token);
            let right = self.level(level + 1)?;
            left = Expression::Pair(*operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, Malformed> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Malformed);
        }
        let found = if self.take("!") {
            Ok(Expression::Not(Box::new(self.unary()?)))
        } else if self.take("-") {
            let zero = Expression::Constant(Value::Integer(0));
            Ok(Expression::Pair(Operator::Subtract, Box::new(zero), Box::new(self.unary()?)))
        } else if self.take("(") {
            let inner = self.level(0)?;
            if self.take(")") { Ok(inner) } else { Err(Malformed) }
        } else if self.take("'") {
            let (text, rest) = self.rest.split_once('\'').ok_or(Malformed)?;
            self.rest = rest;
            Ok(Expression::Constant(Value::Text(text.to_owned())))
        } else {
            self.word()
        };
        self.depth -= 1;
        found
    }

    fn span(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (span, rest) = self.rest.split_at(end);
        self.rest = rest;
        span
    }

    fn word(&mut self) -> Result<Expression, Malformed> {
        let word = self.span(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number = match word.parse() {
                Ok(value) => Value::integer(value),
                Err(_) => Value::Float(word.parse().map_err(|_| Malformed)?),
            };
            return Ok(Expression::Constant(number));
        }
        if !self.take("(") {
            return Ok(match word {
                "" => return Err(Malformed),
                "i" => Expression::Layer,
                "n" => Expression::Layers,
                "true" => Expression::Constant(Value::Integer(1)),
                "false" => Expression::Constant(Value::Integer(0)),
                key => Expression::Key(key.to_owned()),
            });
        }
        let known = FUNCTIONS.iter().find(|(name, _)| *name == word);
        let (_, function) = known.ok_or(Malformed)?;
        let mut arguments = vec![self.level(0)?];
        while self.take(",") {
            arguments.push(self.level(0)?);
        }
        if self.take(")") { Ok(Expression::Call(*function, arguments)) } else { Err(Malformed) }
    }
}

/// The context of an expression: the keys, and the layer.
pub(in crate::read::config) trait Scope {
    /// Returns the value of a key, or its default if it is missing.
    fn key(&self, key: &str) -> Value;
    /// Returns the index of the layer and the number of layers, if the expression is about a layer.
    fn layer(&self) -> Option<(i128, i128)>;
}

impl Expression {
    pub(in crate::read::config) fn parse(text: &str) -> Result<Expression, Malformed> {
        let mut parser = Parser { rest: text, depth: 0 };
        let expression = parser.level(0)?;
        if parser.rest.is_empty() { Ok(expression) } else { Err(Malformed) }
    }

    /// Parses comma-separated expressions; an empty text has none.
    pub(in crate::read::config) fn parse_list(text: &str) -> Result<Vec<Expression>, Malformed> {
        let (mut parser, mut list) = (Parser { rest: text, depth: 0 }, Vec::new());
        while !parser.rest.is_empty() {
            list.push(parser.level(0)?);
            if !parser.take(",") && !parser.rest.is_empty() {
                return Err(Malformed);
            }
        }
        Ok(list)
    }

    pub(in crate::read::config) fn evaluate(&self, scope: &dyn Scope) -> Value {
        let flag = |flag: bool| Value::Integer(i128::from(flag));
        match self {
            Expression::Constant(value) => value.clone(),
            Expression::Key(key) => scope.key(key),
            Expression::Layer => scope.layer().map_or(Value::Null, |(i, _)| Value::Integer(i)),
            Expression::Layers => scope.layer().map_or(Value::Null, |(_, n)| Value::Integer(n)),
            Expression::Not(inner) => flag(!inner.evaluate(scope).is_true()),
            Expression::Pair(Operator::Or, a, b) => {
                flag(a.evaluate(scope).is_true() || b.evaluate(scope).is_true())
            }
            Expression::Pair(Operator::And, a, b) => {
                flag(a.evaluate(scope).is_true() && b.evaluate(scope).is_true())
            }
            Expression::Pair(operator, a, b) => {
                pair(*operator, &a.evaluate(scope), &b.evaluate(scope), scope)
            }
            Expression::Call(function, arguments) => {
                let values: Vec<Value> =
                    arguments.iter().map(|argument| argument.evaluate(scope)).collect();
                call(*function, &values, scope)
            }
        }
    }

    /// Returns the value of a dimension or count. A list has one value per layer.
    pub(in crate::read::config) fn dimension(&self, scope: &dyn Scope) -> Value {
        single(self.evaluate(scope), scope)
    }
}

/// Returns the element of a list for this layer; without a layer, its only element.
fn single(value: Value, scope: &dyn Scope) -> Value {
    match (&value, scope.layer()) {
        (Value::List(_), Some((i, _))) => value.entry(i, false),
        (Value::List(list), None) => list.first().cloned().unwrap_or(Value::Null),
        _ => value,
    }
}

fn pair(operator: Operator, a: &Value, b: &Value, scope: &dyn Scope) -> Value {
    let flag = |flag: bool| Value::Integer(i128::from(flag));
    let (a, b) = (&single(a.clone(), scope), &single(b.clone(), scope));
    match operator {
        Operator::Equal | Operator::Unequal => {
            let equal = match (a.float(), b.float()) {
                (Some(a), Some(b)) => a == b,
                _ => a == b && *a != Value::Null,
            };
            return flag(equal == (operator == Operator::Equal));
        }
        _ => {}
    }
    if let (Value::Integer(a), Value::Integer(b)) = (a, b) {
        return whole(operator, *a, *b);
    }
    let (Some(a), Some(b)) = (a.float(), b.float()) else { return Value::Null };
    let result = match operator {
        Operator::Less => return flag(a < b),
        Operator::AtMost => return flag(a <= b),
        Operator::More => return flag(a > b),
        Operator::AtLeast => return flag(a >= b),
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        Operator::DivideWhole => (a / b).floor(),
        Operator::Remainder => a - b * (a / b).floor(),
        Operator::Power => a.powf(b),
        Operator::Or | Operator::And | Operator::Equal | Operator::Unequal => return Value::Null,
    };
    if result.is_finite() { Value::Float(result) } else { Value::Null }
}

fn whole(operator: Operator, a: i128, b: i128) -> Value {
    let flag = |flag: bool| Value::Integer(i128::from(flag));
    match operator {
        Operator::Less => flag(a < b),
        Operator::AtMost => flag(a <= b),
        Operator::More => flag(a > b),
        Operator::AtLeast => flag(a >= b),
        Operator::Add => Value::integer(a + b),
        Operator::Subtract => Value::integer(a - b),
        Operator::Multiply => a.checked_mul(b).map_or(Value::Null, Value::integer),
        Operator::Divide if b != 0 => Value::Float(a as f64 / b as f64),
        // Python rounds down; divisors are positive here.
        Operator::DivideWhole if b > 0 => Value::Integer(a.div_euclid(b)),
        Operator::Remainder if b > 0 => Value::Integer(a.rem_euclid(b)),
        Operator::Power => match u32::try_from(b) {
            Ok(power) if power <= 8 => a.checked_pow(power).map_or(Value::Null, Value::integer),
            _ => Value::Null,
        },
        _ => Value::Null,
    }
}

fn call(function: Function, values: &[Value], scope: &dyn Scope) -> Value {
    let flag = |flag: bool| Value::Integer(i128::from(flag));
    let first = values.first().unwrap_or(&Value::Null);
    let second = values.get(1).unwrap_or(&Value::Null);
    let rounded = |round: fn(f64) -> f64| match first {
        Value::Float(value) => {
            let value = round(*value);
            if value.abs() < MAX as f64 { Value::Integer(value as i128) } else { Value::Null }
        }
        other => other.clone(),
    };
    match function {
        Function::At | Function::Cycle => {
            let at = scope.layer().map(|(i, _)| i);
            at.map_or(Value::Null, |at| first.entry(at, function == Function::Cycle))
        }
        Function::In => match first {
            Value::List(list) => flag(list.contains(second)),
            _ => flag(false),
        },
        Function::Length => match first {
            Value::List(list) => Value::Integer(list.len() as i128),
            Value::Text(text) => Value::Integer(text.len() as i128),
            _ => Value::Null,
        },
        Function::IsNull => flag(*first == Value::Null),
        Function::Max | Function::Min => match (first.float(), second.float()) {
            (Some(a), Some(b)) => {
                let first_wins = if function == Function::Max { a >= b } else { a <= b };
                if first_wins { first.clone() } else { second.clone() }
            }
            _ => Value::Null,
        },
        Function::Ceiling => rounded(f64::ceil),
        Function::Floor => rounded(f64::floor),
        Function::Round => rounded(f64::round_ties_even),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Layer(Option<(i128, i128)>);

    impl Scope for Layer {
        fn key(&self, key: &str) -> Value {
            match key {
                "width" => Value::Integer(4096),
                "ratio" => Value::Float(2.5),
                "huge" => Value::Integer(MAX),
                "types" => {
                    Value::List(Rc::new([Value::Text("a".to_owned()), Value::Text("b".to_owned())]))
                }
                "widths" => Value::List(Rc::new([Value::Integer(8), Value::Integer(16)])),
                "pattern" => Value::Text("M*".to_owned()),
                _ => Value::Null,
            }
        }

        fn layer(&self) -> Option<(i128, i128)> {
            self.0
        }
    }

    fn value(text: &str, layer: i128) -> Value {
        Expression::parse(text).expect(text).dimension(&Layer(Some((layer, 4))))
    }

    #[test]
    fn number_of_json_is_an_integer_if_it_is_whole_and_not_too_large() {
        for (json, expected) in [
            ("3", Value::Integer(3)),
            ("3.0", Value::Integer(3)),
            ("-3e2", Value::Integer(-300)),
            ("2.5", Value::Float(2.5)),
            ("4611686018427387904", Value::Integer(MAX)),
            ("4611686018427387905", Value::Null),
            ("18446744073709551615", Value::Null),
            ("4611686018427387904.0", Value::Float(MAX as f64)),
            ("-4611686018427387904.0", Value::Float(-MAX as f64)),
            ("1e300", Value::Float(1e300)),
            ("true", Value::Integer(1)),
            ("{}", Value::Null),
        ] {
            let value = Value::of(&serde_json::from_str(json).unwrap());
            assert_eq!(value, expected, "{json}");
        }
    }

    #[test]
    fn arithmetic_matches_python() {
        for (text, expected) in [
            ("2*width+3", 8195),
            ("2*(width+3)", 8198),
            ("width//32-1", 127),
            ("(0-1)%3", 2),
            ("5+-2", 3),
            ("(width//16)^2", 65_536),
            ("floor(width*ratio)", 10_240),
            ("ceil(width/100)", 41),
            ("round(ratio)", 2),
            ("max(width,5)", 4096),
            ("min(width,5)", 5),
            ("widths", 16),
            ("2*widths", 32),
            ("len(types)", 2),
        ] {
            assert_eq!(value(text, 1), Value::Integer(expected), "{text}");
        }
    }

    #[test]
    fn conditions_depend_on_layer() {
        for (text, layers) in [
            ("i<2", [true, true, false, false]),
            ("(i+1)%2==0", [false, true, false, true]),
            ("i>=n-1", [false, false, false, true]),
            ("at(types)=='b'", [false, true, false, false]),
            ("cycle(types)!='b'", [true, false, true, false]),
            ("at(pattern)=='*'|i==3", [false, true, false, true]),
            ("!in(widths,i+8)&width", [false, true, true, true]),
            ("null(missing)&!(missing>0)&missing!=1", [true; 4]),
            ("i%missing==0", [false; 4]),
        ] {
            let found = [0, 1, 2, 3].map(|layer| value(text, layer).is_true());
            assert_eq!(found, layers, "{text}");
        }
    }

    #[test]
    fn missing_values_are_null() {
        for text in [
            "huge*huge",
            "huge+huge",
            "width//0",
            "width%0",
            "width/0",
            "width^99",
            "missing+1",
            "ratio^9999",
            "types*2",
        ] {
            assert_eq!(value(text, 0), Value::Null, "{text}");
        }
    }

    #[test]
    fn rejects_malformed_expressions() {
        let nested = format!("{}1{}", "(".repeat(1000), ")".repeat(1000));
        for text in ["", "1+", "(1", "f(1)", "'a", "1 + 1", "at(", &nested] {
            assert_eq!(Expression::parse(text), Err(Malformed), "{text}");
        }
    }
}
