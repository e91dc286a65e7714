//! Tests of each operator against its definition, restated.

use skyhop_needs::onnx::Attribute::{Float, Int};
use skyhop_needs::onnx::{Attribute, File};
use skyhop_policy::{Card, Memory, Model as _, Network};

use crate::cards::{CWND, plain};
use crate::draws::Draws;

type Each = fn(f32) -> f32;
type Both = fn(f32, f32) -> f32;
/// Index of the value to expect at a row and column, of two rows and three columns.
type At = fn(usize, usize) -> usize;

/// Weight of an output value in the single number that is compared.
fn weight(index: usize) -> f32 {
    1.0 + 0.37 * index as f32
}

fn weighed(values: &[f32]) -> f32 {
    values.iter().enumerate().map(|(index, value)| weight(index) * value).sum()
}

/// Network around a single operator, whose output is reduced to one number.
struct Trial {
    file: File,
    seen: Vec<f32>,
}

impl Trial {
    fn new(shape: &[usize], seed: u64) -> Self {
        let mut file = File::default();
        file.input("x", shape);
        Self { file, seen: Draws(seed).numbers(shape.iter().product()) }
    }

    fn floats(mut self, name: &str, shape: &[usize], values: &[f32]) -> Self {
        self.file.floats(name, shape, values);
        self
    }

    fn ints(mut self, name: &str, values: &[i64]) -> Self {
        self.file.ints(name, values);
        self
    }

    fn node(
        mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> Self {
        self.file.node(operator, inputs, outputs, attributes);
        self
    }

    /// Run the network and return the weighted sum of `y`, which has `size` values.
    fn said(mut self, size: usize) -> Result<f32, String> {
        self.file.ints("all", &[1, -1]);
        self.file.node("Reshape", &["y", "all"], &["row"], &[]);
        let weights: Vec<f32> = (0..size).map(weight).collect();
        self.file.floats("weights", &[size, 1], &weights);
        self.file.node("MatMul", &["row", "weights"], &["said"], &[]);
        self.file.output("said", &[1, 1]);
        let card = Card::parse(&plain("{ of = \"cwnd\" }", self.seen.len(), CWND)).unwrap();
        let network =
            Network::read(&card, &self.file.bytes()).map_err(|error| error.to_string())?;
        Ok(network.run(&self.seen, &mut Memory::default()).unwrap() as f32)
    }

    fn is(self, expected: &[f32]) {
        let said = self.said(expected.len()).unwrap();
        let expected = weighed(expected);
        assert!((said - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{said}, not {expected}");
    }
}

#[test]
fn operators_of_one_input() {
    let all: [(&str, Each); 11] = [
        ("Relu", |x| x.max(0.0)),
        ("Tanh", f32::tanh),
        ("Sigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("Exp", f32::exp),
        ("Neg", |x| -x),
        ("Identity", |x| x),
        ("Dropout", |x| x),
        ("Softplus", |x| (1.0 + x.exp()).ln()),
        ("Softsign", |x| x / (1.0 + x.abs())),
        ("LeakyRelu", |x| if x < 0.0 { 0.01 * x } else { x }),
        ("Elu", |x| if x < 0.0 { x.exp() - 1.0 } else { x }),
    ];
    for (name, each) in all {
        let trial = Trial::new(&[2, 5], 3);
        let expected: Vec<f32> = trial.seen.iter().map(|x| each(*x)).collect();
        trial.node(name, &["x"], &["y"], &[]).is(&expected);
    }
    for (name, each) in [("Log", f32::ln as Each), ("Sqrt", f32::sqrt)] {
        let trial = Trial::new(&[5], 3);
        let expected: Vec<f32> = trial.seen.iter().map(|x| each(x.exp())).collect();
        trial.node("Exp", &["x"], &["e"], &[]).node(name, &["e"], &["y"], &[]).is(&expected);
    }
}

#[test]
fn parameters_of_one_input() {
    let seen = Trial::new(&[6], 4).seen;
    let each = |f: &dyn Fn(f32) -> f32| seen.iter().map(|x| f(*x)).collect::<Vec<_>>();
    let of = |operator, attributes: &[(&str, Attribute)]| {
        Trial::new(&[6], 4).node(operator, &["x"], &["y"], attributes)
    };
    of("LeakyRelu", &[("alpha", Float(0.2))]).is(&each(&|x| if x < 0.0 { 0.2 * x } else { x }));
    of("Elu", &[("alpha", Float(2.0))])
        .is(&each(&|x| if x < 0.0 { 2.0 * (x.exp() - 1.0) } else { x }));
    of("Clip", &[("min", Float(-0.5)), ("max", Float(0.25))]).is(&each(&|x| x.clamp(-0.5, 0.25)));
    let bounded = Trial::new(&[6], 4).floats("least", &[], &[-0.5]);
    bounded.node("Clip", &["x", "least"], &["y"], &[]).is(&each(&|x| x.max(-0.5)));
    let sum: f32 = seen.iter().map(|x| x.exp()).sum();
    of("Softmax", &[]).is(&each(&|x| x.exp() / sum));
}

#[test]
fn two_inputs_fit_where_an_axis_is_one() {
    let seen = Trial::new(&[2, 3], 5).seen;
    let by = Draws(6).numbers(6);
    let cases: [(&[usize], At); 6] = [
        (&[2, 3], |row, column| 3 * row + column),
        (&[3], |_, column| column),
        (&[1, 3], |_, column| column),
        (&[2, 1], |row, _| row),
        (&[], |_, _| 0),
        (&[1, 1, 1], |_, _| 0),
    ];
    let operators: [(&str, Both); 4] = [
        ("Add", |a, b| a + b),
        ("Sub", |a, b| a - b),
        ("Mul", |a, b| a * b),
        ("Div", |a, b| a / b),
    ];
    for (shape, at) in cases {
        let values = &by[..shape.iter().product()];
        for (name, both) in operators {
            let expected = |turned: bool| -> Vec<f32> {
                let pair = |index: usize| (seen[index], values[at(index / 3, index % 3)]);
                let pairs = (0..6).map(pair);
                pairs.map(|(x, by)| if turned { both(by, x) } else { both(x, by) }).collect()
            };
            let trial = || Trial::new(&[2, 3], 5).floats("by", shape, values);
            trial().node(name, &["x", "by"], &["y"], &[]).is(&expected(false));
            trial().node(name, &["by", "x"], &["y"], &[]).is(&expected(true));
        }
    }
    let wrong = Trial::new(&[2, 3], 5).floats("by", &[2], &[1.0, 2.0]);
    let error = wrong.node("Add", &["x", "by"], &["y"], &[]).said(6).unwrap_err();
    assert_eq!(error, "cannot be run: `Add` 2 x 3 and 2 do not fit");
}

#[test]
fn matrices() {
    // Sizes that are no multiples of four, by which the product is computed.
    let (rows, inner, columns) = (3, 7, 5);
    let b = Draws(8).numbers(inner * columns);
    let c = Draws(9).numbers(columns);
    for case in 0..8 {
        let [flip_a, flip_b, scaled] = [1, 2, 4].map(|bit| case & bit != 0);
        let shape = if flip_a { [inner, rows] } else { [rows, inner] };
        let trial = Trial::new(&shape, 7);
        let seen = trial.seen.clone();
        let [alpha, beta] = if scaled { [0.5, -2.0] } else { [1.0, 1.0] };
        let a_at =
            |row: usize, k: usize| seen[if flip_a { k * rows + row } else { row * inner + k }];
        let b_at = |k: usize, to: usize| b[if flip_b { to * inner + k } else { k * columns + to }];
        let product =
            |row: usize, to: usize| (0..inner).map(|k| a_at(row, k) * b_at(k, to)).sum::<f32>();
        let expected = |row: usize, to: usize| alpha * product(row, to) + beta * c[to];
        let all: Vec<f32> =
            (0..rows * columns).map(|at| expected(at / columns, at % columns)).collect();
        let b_shape = if flip_b { [columns, inner] } else { [inner, columns] };
        let attributes = [
            ("alpha", Float(alpha)),
            ("beta", Float(beta)),
            ("transA", Int(flip_a.into())),
            ("transB", Int(flip_b.into())),
        ];
        let trial = trial.floats("b", &b_shape, &b).floats("c", &[columns], &c);
        trial.node("Gemm", &["x", "b", "c"], &["y"], &attributes).is(&all);
        if case == 0 {
            let plain: Vec<f32> =
                (0..rows * columns).map(|at| product(at / columns, at % columns)).collect();
            let trial = Trial::new(&shape, 7).floats("b", &b_shape, &b);
            trial.node("MatMul", &["x", "b"], &["y"], &[]).is(&plain);
        }
    }
}

#[test]
fn shapes_are_cut_joined_and_turned() {
    let trial = || Trial::new(&[1, 2, 4], 10);
    let x = trial().seen;
    trial().node("Flatten", &["x"], &["y"], &[]).is(&x);
    trial().node("Squeeze", &["x"], &["y"], &[]).is(&x);
    trial().ints("a", &[0, -1]).node("Unsqueeze", &["x", "a"], &["y"], &[]).is(&x);
    trial().ints("s", &[0, -1, 2]).node("Reshape", &["x", "s"], &["y"], &[]).is(&x);
    let cut = trial().ints("from", &[1, -3]).ints("to", &[9, -1]).ints("axes", &[1, 2]);
    cut.node("Slice", &["x", "from", "to", "axes"], &["y"], &[]).is(&x[5..7]);
    let parts = || trial().ints("sizes", &[1, 3]);
    let split = ("axis", Int(2));
    parts()
        .node("Split", &["x", "sizes"], &["a", "y"], &[split])
        .is(&[&x[1..4], &x[5..8]].concat());
    let joined = parts().node("Split", &["x", "sizes"], &["a", "b"], &[split]);
    let turned = [&x[1..4], &x[0..1], &x[5..8], &x[4..5]].concat();
    joined.node("Concat", &["b", "a"], &["y"], &[split]).is(&turned);
    let halves = trial().node("Split", &["x"], &["a", "y"], &[("axis", Int(-1))]);
    halves.is(&[&x[2..4], &x[6..8]].concat());
    let mean = [0, 1, 2, 3].map(|at| (x[at] + x[at + 4]) / 2.0);
    trial()
        .ints("a", &[1])
        .node("ReduceMean", &["x", "a"], &["y"], &[("keepdims", Int(0))])
        .is(&mean);
    trial().node("ReduceSum", &["x"], &["y"], &[]).is(&[x.iter().sum()]);
}

#[test]
fn normalisations() {
    let (width, seen) = (5, Trial::new(&[2, 5], 11).seen);
    let [scale, shift, mean] = [12, 13, 14].map(|seed| Draws(seed).numbers(width));
    let variance: Vec<f32> = Draws(15).numbers(width).into_iter().map(|x| 1.5 + x).collect();
    let with = || {
        let trial = Trial::new(&[2, width], 11).floats("s", &[width], &scale);
        trial.floats("b", &[width], &shift)
    };
    let layer = seen.chunks(width).flat_map(|row| {
        let mean = row.iter().sum::<f32>() / width as f32;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / width as f32;
        let each = move |x: &f32| (x - mean) / (variance + 1e-5).sqrt();
        row.iter().map(each).enumerate().map(|(at, x)| scale[at] * x + shift[at])
    });
    with().node("LayerNormalization", &["x", "s", "b"], &["y"], &[]).is(&layer.collect::<Vec<_>>());
    let batch = seen.iter().enumerate().map(|(at, x)| {
        let at = at % width;
        scale[at] * (x - mean[at]) / (variance[at] + 0.01).sqrt() + shift[at]
    });
    let trial = with().floats("m", &[width], &mean).floats("v", &[width], &variance);
    let trial = trial.node(
        "BatchNormalization",
        &["x", "s", "b", "m", "v"],
        &["y"],
        &[("epsilon", Float(0.01))],
    );
    trial.is(&batch.collect::<Vec<_>>());
}

/// Three decisions of a recurrent network, against the equations of ONNX's documentation.
#[test]
fn gated_units_remember() {
    let (inputs, units) = (3, 6);
    let [w, r] = [(21, inputs), (22, units)].map(|(seed, n)| Draws(seed).numbers(3 * units * n));
    let bias = Draws(23).numbers(6 * units);
    for resets_product in [false, true] {
        let mut file = File::default();
        file.input("x", &[1, 1, inputs]);
        file.input("h", &[1, 1, units]);
        file.floats("w", &[1, 3 * units, inputs], &w);
        file.floats("r", &[1, 3 * units, units], &r);
        file.floats("b", &[1, 6 * units], &bias);
        let attributes =
            [("hidden_size", Int(6)), ("linear_before_reset", Int(resets_product.into()))];
        file.node("GRU", &["x", "w", "r", "b", "", "h"], &["all", "next"], &attributes);
        file.output("all", &[1, 1, 1, units]);
        file.output("next", &[1, 1, units]);
        let memory = "memory = [{ input = \"h\", output = \"next\", size = 6 }]\n[action]";
        let text = plain("{ of = \"cwnd\" }", inputs, CWND).replace("[action]", memory);
        let card = Card::parse(&text).unwrap();
        let network = Network::read(&card, &file.bytes()).unwrap();
        let (mut memory, mut h) = (Memory::new(&card), vec![0.0; units]);
        for seed in 0..3 {
            let x = Draws(seed).numbers(inputs);
            let dot = |rows: &[f32], row: usize, of: &[f32]| -> f32 {
                (0..of.len()).map(|at| rows[row * of.len() + at] * of[at]).sum()
            };
            let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
            let gate = |row: usize| {
                sigmoid(dot(&w, row, &x) + bias[row] + dot(&r, row, &h) + bias[3 * units + row])
            };
            let reset: Vec<f32> = (0..units).map(|unit| gate(units + unit)).collect();
            let left: Vec<f32> = (0..units).map(|unit| reset[unit] * h[unit]).collect();
            let next = (0..units).map(|unit| {
                let row = 2 * units + unit;
                let own = if resets_product {
                    reset[unit] * (dot(&r, row, &h) + bias[3 * units + row])
                } else {
                    dot(&r, row, &left) + bias[3 * units + row]
                };
                let new = (dot(&w, row, &x) + bias[row] + own).tanh();
                (1.0 - gate(unit)) * new + gate(unit) * h[unit]
            });
            h = next.collect();
            let said = network.run(&x, &mut memory).unwrap();
            assert!((said - f64::from(h[0])).abs() < 1e-5, "{said}, not {}", h[0]);
            let apart = memory.0[0].iter().zip(&h).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f32::max) < 1e-5);
        }
    }
}

#[test]
fn computed_shapes_and_large_tensors_are_refused() {
    let trial = || Trial::new(&[1, 4], 1);
    let refusals = [
        (
            trial().node("Reshape", &["x", "x"], &["y"], &[]).said(4),
            "its operator `Reshape` computes its shape: give them as constants",
        ),
        (
            trial()
                .node("Relu", &["later"], &["y"], &[])
                .node("Relu", &["x"], &["later"], &[])
                .said(4),
            "its operator `Relu` reads `later`, which no node before it defines",
        ),
        (
            trial().ints("s", &[3, -1]).node("Reshape", &["x", "s"], &["y"], &[]).said(4),
            "cannot be run: `Reshape` 4 values do not make 3 x 1",
        ),
        (
            trial().ints("s", &[0, i64::MAX]).node("Reshape", &["x", "s"], &["y"], &[]).said(4),
            "cannot be run: `Reshape` ",
        ),
        (
            trial().floats("c", &[2], &[1.0]).node("Relu", &["x"], &["y"], &[]).said(4),
            "its constant `c` ",
        ),
        (trial().ints("y", &[1]).said(1), "its operator `Reshape` reads `y`"),
        (trial().node("Add", &["x"], &["y"], &[]).said(4), "cannot be run: `Add` has no input 2"),
        (
            trial().node("Concat", &["x"], &["y"], &[("axis", Int(-9))]).said(4),
            "cannot be run: `Concat` has no axis -9",
        ),
        (
            trial().node("Softmax", &["x"], &["y"], &[("axis", Int(i64::MIN))]).said(4),
            "cannot be run: ",
        ),
        (
            trial().node("GRU", &["x", "x", "x"], &["y"], &[]).said(4),
            "cannot be run: `GRU` takes in",
        ),
    ];
    for (said, expected) in refusals {
        let error = said.unwrap_err();
        assert!(error.starts_with(expected) && !error.contains('\n'), "{expected}: {error}");
    }
}

/// Every operator listed as known is recognised, whatever else is wrong with its node.
#[test]
fn operators_that_are_listed_are_known() {
    let told = |operator: &str| {
        Trial::new(&[1, 4], 1).node(operator, &["x"], &["y"], &[]).said(4).err().unwrap_or_default()
    };
    let unknown = told("Skyhop");
    let (_, listed) = unknown.split_once("is not known; known are ").unwrap();
    let names: Vec<&str> = listed.split(", ").collect();
    assert!(names.len() > 30 && names.is_sorted_by_key(|name| name.to_lowercase()), "{listed}");
    for name in names {
        assert!(!told(name).contains("is not known"), "{name}");
    }
}

/// Nodes that each double the size: the demand exceeds any memory.
#[test]
fn small_files_that_ask_for_much_are_refused() {
    let mut doubled = Trial::new(&[1, 1], 1).node("Identity", &["x"], &["n0"], &[]);
    for step in 0..40 {
        let (from, to) = (format!("n{step}"), format!("n{}", step + 1));
        doubled = doubled.node("Concat", &[&from, &from], &[&to], &[("axis", Int(1))]);
    }
    let error = doubled.node("Identity", &["n40"], &["y"], &[]).said(1).unwrap_err();
    assert_eq!(error, "cannot be run: `Concat` 1 x 8388608 are no numbers, or more than 4194304");
    let mut long = Trial::new(&[1, 1], 1);
    for _ in 0..2_100 {
        long = long.node("Identity", &["x"], &["y"], &[]);
    }
    assert_eq!(long.said(1).unwrap_err(), "has 2102 nodes; at most 2000");
}

/// A file that is cut or changed anywhere is refused or run, and causes no panic.
#[test]
fn damaged_files_do_no_harm() {
    let mut file = File::default();
    file.input("x", &[1, 4]);
    file.floats("w", &[4, 3], &Draws(1).numbers(12));
    file.ints("s", &[1, -1]);
    file.node("MatMul", &["x", "w"], &["a"], &[]);
    file.node("Reshape", &["a", "s"], &["b"], &[]);
    file.node("Softmax", &["b"], &["y"], &[("axis", Int(1))]);
    file.output("y", &[1, 3]);
    let (bytes, mut draws) = (file.bytes(), Draws(2));
    let card = Card::parse(&plain("{ of = \"cwnd\" }", 4, CWND)).unwrap();
    assert!(Network::read(&card, &bytes).is_ok());
    for _ in 0..20_000 {
        let mut damaged = bytes.clone();
        let at = draws.below(bytes.len() as u32) as usize;
        damaged[at] = draws.below(256) as u8;
        if draws.below(4) == 0 {
            damaged.truncate(draws.below(bytes.len() as u32) as usize);
        }
        if let Err(error) = Network::read(&card, &damaged) {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
