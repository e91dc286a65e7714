//! Operators of ONNX (opset 13 to 22) that networks of congestion controls use. Axes and sizes, which determine
//! shapes, must be constants when the network is read; they cannot be computed.

use std::collections::BTreeMap;

use super::format::Node;
use super::gru::Gru;
use super::tensor::{Tensor, axis_of};

/// Names of the operators, as in files.
const KNOWN: &str = "Add, BatchNormalization, Clip, Concat, Constant, Div, Dropout, Elu, Exp, Flatten, Gemm, GRU, \
                     Identity, LayerNormalization, LeakyRelu, Log, MatMul, Mul, Neg, ReduceMean, ReduceSum, Relu, \
                     Reshape, Sigmoid, Slice, Softmax, Softplus, Softsign, Split, Sqrt, Squeeze, Sub, Tanh, Unsqueeze";

/// Operator of a node with its attributes.
#[derive(Debug)]
pub(super) enum Operator {
    Each(fn(f32) -> f32),
    /// Leaky ReLU with the slope for negative inputs.
    LeakyRelu(f32),
    Elu(f32),
    Both(fn(f32, f32) -> f32),
    Clip(f32, f32),
    Gemm {
        alpha: f32,
        beta: f32,
        transposes: [bool; 2],
    },
    MatMul,
    Concat(i64),
    Reshape(Vec<i64>),
    Flatten(i64),
    Squeeze(Vec<i64>),
    Unsqueeze(Vec<i64>),
    /// Axes, each with the begin and end of its range.
    Slice(Vec<(i64, [i64; 2])>),
    Split {
        axis: i64,
        sizes: Vec<i64>,
        parts: usize,
    },
    Softmax(i64),
    Reduce {
        mean: bool,
        axes: Vec<i64>,
        keep: bool,
    },
    LayerNorm {
        axis: i64,
        epsilon: f32,
    },
    BatchNorm(f32),
    Gru(Gru),
}

/// Attributes of a node, and the constants that it may use as attributes.
pub(super) struct NodeAttributes<'n> {
    node: &'n Node,
    /// Constants of whole numbers, by name.
    whole: &'n BTreeMap<String, Vec<i64>>,
    /// Constants with a single value, by name.
    single: &'n BTreeMap<String, f32>,
}

impl<'n> NodeAttributes<'n> {
    pub(super) fn new(
        node: &'n Node,
        whole: &'n BTreeMap<String, Vec<i64>>,
        single: &'n BTreeMap<String, f32>,
    ) -> Self {
        Self { node, whole, single }
    }

    pub(super) fn float(&self, name: &str, otherwise: f32) -> f32 {
        self.attribute(name).map_or(otherwise, |found| found.float)
    }

    pub(super) fn int(&self, name: &str, otherwise: i64) -> i64 {
        self.attribute(name).map_or(otherwise, |found| found.int)
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.attribute(name)
            .map(|found| String::from_utf8_lossy(&found.text).escape_debug().to_string())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    fn attribute(&self, name: &str) -> Option<&super::format::Attribute> {
        self.node.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// Name of an input, if it is given.
    fn input(&self, index: usize) -> Option<&str> {
        self.node.inputs.get(index).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// List of whole numbers: a constant input, or in older files an attribute.
    fn list(&self, index: usize, name: &str) -> Result<Option<Vec<i64>>, String> {
        let Some(input) = self.input(index) else {
            return Ok(self.attribute(name).map(|found| found.ints.clone()));
        };
        let found = self.whole.get(input).cloned();
        found.map(Some).ok_or_else(|| format!("computes its {name}: give them as constants"))
    }

    fn needed(&self, index: usize, name: &str) -> Result<Vec<i64>, String> {
        self.list(index, name)?.ok_or_else(|| format!("does not say its {name}"))
    }

    fn bound(&self, index: usize, name: &str, otherwise: f32) -> Result<f32, String> {
        let Some(input) = self.input(index) else { return Ok(self.float(name, otherwise)) };
        let found = self.single.get(input).copied();
        found.ok_or_else(|| format!("computes its {name}: give it as a constant"))
    }

    fn slices(&self) -> Result<Vec<(i64, [i64; 2])>, String> {
        let (starts, ends) = (self.needed(1, "starts")?, self.needed(2, "ends")?);
        let axes = self.list(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = self.list(4, "steps")?.unwrap_or_default();
        if starts.len() != ends.len()
            || axes.len() != ends.len()
            || steps.iter().any(|step| *step != 1)
        {
            return Err("slices with a step other than 1".to_owned());
        }
        Ok(axes
            .into_iter()
            .zip(starts.into_iter().zip(ends).map(|(from, to)| [from, to]))
            .collect())
    }
}

impl Operator {
    /// Read the operator of a node.
    pub(super) fn read(attributes: &NodeAttributes<'_>) -> Result<Self, String> {
        let node = attributes.node;
        if !matches!(node.domain.as_str(), "" | "ai.onnx") {
            return Err("is not in the standard operator set of ONNX".to_owned());
        }
        Ok(match node.operator.as_str() {
            "Identity" | "Dropout" => Self::Each(|x| x),
            "Neg" => Self::Each(|x| -x),
            "Exp" => Self::Each(f32::exp),
            "Log" => Self::Each(f32::ln),
            "Sqrt" => Self::Each(f32::sqrt),
            "Tanh" => Self::Each(f32::tanh),
            "Sigmoid" => Self::Each(sigmoid),
            "Softplus" => Self::Each(|x| x.max(0.0) + (-x.abs()).exp().ln_1p()),
            "Softsign" => Self::Each(|x| x / (1.0 + x.abs())),
            // NaN stays NaN.
            "Relu" => Self::Each(|x| if x < 0.0 { 0.0 } else { x }),
            "LeakyRelu" => Self::LeakyRelu(attributes.float("alpha", 0.01)),
            "Elu" => Self::Elu(attributes.float("alpha", 1.0)),
            "Add" => Self::Both(|a, b| a + b),
            "Sub" => Self::Both(|a, b| a - b),
            "Mul" => Self::Both(|a, b| a * b),
            "Div" => Self::Both(|a, b| a / b),
            "Clip" => clip(attributes)?,
            "Gemm" => Self::Gemm {
                alpha: attributes.float("alpha", 1.0),
                beta: attributes.float("beta", 1.0),
                transposes: ["transA", "transB"].map(|name| attributes.int(name, 0) != 0),
            },
            "MatMul" => Self::MatMul,
            "Concat" => Self::Concat(attributes.int("axis", 0)),
            "Reshape" => Self::Reshape(attributes.needed(1, "shape")?),
            "Flatten" => Self::Flatten(attributes.int("axis", 1)),
            "Squeeze" => Self::Squeeze(attributes.list(1, "axes")?.unwrap_or_default()),
            "Unsqueeze" => Self::Unsqueeze(attributes.needed(1, "axes")?),
            "Slice" => Self::Slice(attributes.slices()?),
            "Split" => Self::Split {
                axis: attributes.int("axis", 0),
                sizes: attributes.list(1, "split")?.unwrap_or_default(),
                parts: node.outputs.len(),
            },
            "Softmax" => Self::Softmax(attributes.int("axis", -1)),
            "ReduceMean" | "ReduceSum" => Self::Reduce {
                mean: node.operator == "ReduceMean",
                axes: attributes.list(1, "axes")?.unwrap_or_default(),
                keep: attributes.int("keepdims", 1) != 0,
            },
            "LayerNormalization" => Self::LayerNorm {
                axis: attributes.int("axis", -1),
                epsilon: attributes.float("epsilon", 1e-5),
            },
            "BatchNormalization" => Self::BatchNorm(attributes.float("epsilon", 1e-5)),
            "GRU" => Self::Gru(Gru::read(attributes)?),
            _ => return Err(format!("is not known; known are {KNOWN}")),
        })
    }

    /// Number of inputs that are computed; the others were read as constants with the node.
    pub(super) fn takes(&self) -> usize {
        match self {
            Self::Clip(..)
            | Self::Reshape(_)
            | Self::Squeeze(_)
            | Self::Unsqueeze(_)
            | Self::Slice(_)
            | Self::Split { .. }
            | Self::Reduce { .. } => 1,
            _ => usize::MAX,
        }
    }

    /// Compute the outputs; an input that is not given is `None`.
    pub(super) fn run(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, String> {
        let input = |index: usize| {
            let given = inputs.get(index).copied().flatten();
            given.ok_or_else(|| format!("has no input {}", index + 1))
        };
        let x = input(0)?;
        let one = match self {
            Self::Each(each) => x.map(each),
            Self::LeakyRelu(alpha) => x.map(|x| if x < 0.0 { alpha * x } else { x }),
            Self::Elu(alpha) => x.map(|x| if x < 0.0 { alpha * x.exp_m1() } else { x }),
            Self::Both(both) => x.zip_broadcast(input(1)?, both)?,
            Self::Clip(least, most) => x.map(|x| x.clamp(*least, *most)),
            Self::Gemm { alpha, beta, transposes } => {
                gemm(x, input(1)?, inputs.get(2).copied().flatten(), [*alpha, *beta], *transposes)?
            }
            Self::MatMul => x.matmul(input(1)?)?,
            Self::Concat(axis) => {
                let all: Option<Vec<&Tensor>> = inputs.iter().copied().collect();
                Tensor::concat(&all.ok_or("has an empty input")?, *axis)?
            }
            Self::Reshape(to) => x.reshaped(reshaped(x.shape(), to)?)?,
            Self::Flatten(axis) => {
                let at =
                    if *axis == x.shape().len() as i64 { x.shape().len() } else { x.axis(*axis)? };
                let (rows, columns) = x.shape().split_at(at);
                x.reshaped(vec![rows.iter().product(), columns.iter().product()])?
            }
            Self::Squeeze(axes) => squeeze(x, axes)?,
            Self::Unsqueeze(axes) => unsqueeze(x, axes)?,
            Self::Slice(slices) => slice(x, slices)?,
            Self::Split { axis, sizes, parts } => return split(x, *axis, sizes, *parts),
            Self::Softmax(axis) => softmax(x, *axis)?,
            Self::Reduce { mean, axes, keep } => reduce(x, *mean, axes, *keep)?,
            Self::LayerNorm { axis, epsilon } => {
                layer_norm(x, *axis, *epsilon, input(1)?, inputs.get(2).copied().flatten())?
            }
            Self::BatchNorm(epsilon) => {
                batch_norm(x, *epsilon, [input(1)?, input(2)?, input(3)?, input(4)?])?
            }
            Self::Gru(gru) => return gru.run(inputs),
        };
        Ok(vec![one])
    }
}

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn clip(attributes: &NodeAttributes<'_>) -> Result<Operator, String> {
    let least = attributes.bound(1, "min", f32::NEG_INFINITY)?;
    let most = attributes.bound(2, "max", f32::INFINITY)?;
    if least <= most {
        return Ok(Operator::Clip(least, most));
    }
    Err(format!("has bounds from {least} to {most}"))
}

fn gemm(
    a: &Tensor,
    b: &Tensor,
    c: Option<&Tensor>,
    [alpha, beta]: [f32; 2],
    [flip_a, flip_b]: [bool; 2],
) -> Result<Tensor, String> {
    let flipped = |one: &Tensor, flip: bool| flip.then(|| one.transposed()).transpose();
    let (a_flipped, b_flipped) = (flipped(a, flip_a)?, flipped(b, flip_b)?);
    let mut product = a_flipped.as_ref().unwrap_or(a).matmul(b_flipped.as_ref().unwrap_or(b))?;
    // A factor of 1 would only cost time.
    if alpha != 1.0 {
        product = product.map(|x| alpha * x);
    }
    match c {
        Some(c) => product.zip_broadcast(c, |x, c| if beta == 1.0 { x + c } else { x + beta * c }),
        None => Ok(product),
    }
}

fn reshaped(from: &[usize], to: &[i64]) -> Result<Vec<usize>, String> {
    let mut shape = Vec::with_capacity(to.len());
    for (axis, size) in to.iter().enumerate() {
        shape.push(match size {
            // Size 0 keeps the input's size, and -1 is what remains.
            0 => *from.get(axis).ok_or("keeps an axis that is not there")?,
            -1 => 1,
            size => usize::try_from(*size).map_err(|_| format!("makes an axis of size {size}"))?,
        });
    }
    let known = shape.iter().try_fold(1_usize, |all, size| all.checked_mul(*size));
    if let Some(rest) = to.iter().position(|size| *size == -1) {
        let all: usize = from.iter().product();
        shape[rest] = all.checked_div(known.unwrap_or(0)).unwrap_or(0);
    }
    Ok(shape)
}

fn squeeze(x: &Tensor, axes: &[i64]) -> Result<Tensor, String> {
    let named: Vec<usize> = axes.iter().map(|axis| x.axis(*axis)).collect::<Result<_, _>>()?;
    let goes =
        |axis: usize| if axes.is_empty() { x.shape()[axis] == 1 } else { named.contains(&axis) };
    x.reshaped(
        (0..x.shape().len()).filter(|axis| !goes(*axis)).map(|axis| x.shape()[axis]).collect(),
    )
}

fn unsqueeze(x: &Tensor, axes: &[i64]) -> Result<Tensor, String> {
    let total = x.shape().len() + axes.len();
    let named: Vec<usize> =
        axes.iter().map(|axis| axis_of(*axis, total)).collect::<Result<_, _>>()?;
    let mut sizes = x.shape().iter();
    let each = |axis: usize| if named.contains(&axis) { Some(1) } else { sizes.next().copied() };
    x.reshaped((0..total).filter_map(each).collect())
}

fn slice(x: &Tensor, slices: &[(i64, [i64; 2])]) -> Result<Tensor, String> {
    let mut part = x.clone();
    for (axis, ends) in slices {
        let axis = part.axis(*axis)?;
        let size = part.shape()[axis] as i64;
        let place =
            |at: i64| if at < 0 { at.saturating_add(size) } else { at }.clamp(0, size) as usize;
        let [from, to] = ends.map(place);
        part = part.slice(axis, from, to.max(from))?;
    }
    Ok(part)
}

fn split(x: &Tensor, axis: i64, sizes: &[i64], parts: usize) -> Result<Vec<Tensor>, String> {
    let axis = x.axis(axis)?;
    let size = x.shape()[axis];
    let each = size.div_ceil(parts.max(1));
    let equal = || (0..parts).map(|part| each.min(size.saturating_sub(part * each))).collect();
    let attributes =
        || sizes.iter().map(|size| usize::try_from(*size).unwrap_or(usize::MAX)).collect();
    let sizes: Vec<usize> = if sizes.is_empty() { equal() } else { attributes() };
    let sum = sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size));
    if sum != Some(size) || sizes.len() != parts {
        return Err(format!("makes {parts} parts that are not {size} together"));
    }
    let mut from = 0;
    let parts = sizes.into_iter().map(|size| {
        from += size;
        x.slice(axis, from - size, from)
    });
    parts.collect()
}

fn softmax(x: &Tensor, axis: i64) -> Result<Tensor, String> {
    let axis = x.axis(axis)?;
    along(x, axis, |one| {
        let most = one.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f32> = one.iter().map(|x| (x - most).exp()).collect();
        let sum: f32 = powers.iter().sum();
        powers.into_iter().map(|x| x / sum).collect()
    })
}

/// Apply a function to all values along an axis, which keeps its size.
fn along(x: &Tensor, axis: usize, each: impl Fn(&[f32]) -> Vec<f32>) -> Result<Tensor, String> {
    let [outer, size, inner] = x.extents(axis);
    let mut numbers = vec![0.0; x.numbers().len()];
    for row in 0..outer * inner {
        let at = |step: usize| (row / inner * size + step) * inner + row % inner;
        let one: Vec<f32> = (0..size).map(|step| x.numbers()[at(step)]).collect();
        each(&one).into_iter().enumerate().for_each(|(step, value)| numbers[at(step)] = value);
    }
    Tensor::new(x.shape().to_vec(), numbers)
}

fn reduce(x: &Tensor, mean: bool, axes: &[i64], keep: bool) -> Result<Tensor, String> {
    let named: Vec<usize> = if axes.is_empty() {
        (0..x.shape().len()).collect()
    } else {
        axes.iter().map(|axis| x.axis(*axis)).collect::<Result<_, _>>()?
    };
    let mut reduced = x.clone();
    for axis in &named {
        let [outer, size, inner] = reduced.extents(*axis);
        let by = if mean { size as f32 } else { 1.0 };
        let sum = |row: usize| {
            let at = |step: usize| (row / inner * size + step) * inner + row % inner;
            (0..size).map(|step| reduced.numbers()[at(step)]).sum::<f32>() / by
        };
        let numbers = (0..outer * inner).map(sum).collect();
        let mut shape = reduced.shape().to_vec();
        shape[*axis] = 1;
        reduced = Tensor::new(shape, numbers)?;
    }
    let stay = (0..x.shape().len()).filter(|axis| keep || !named.contains(axis));
    reduced.reshaped(stay.map(|axis| reduced.shape()[axis]).collect())
}

fn layer_norm(
    x: &Tensor,
    axis: i64,
    epsilon: f32,
    scale: &Tensor,
    shift: Option<&Tensor>,
) -> Result<Tensor, String> {
    let width: usize = x.shape()[x.axis(axis)?..].iter().product();
    let mut numbers = x.numbers().to_vec();
    for row in numbers.chunks_exact_mut(width.max(1)) {
        let mean = row.iter().sum::<f32>() / width as f32;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / width as f32;
        let by = 1.0 / (variance + epsilon).sqrt();
        row.iter_mut().for_each(|x| *x = (*x - mean) * by);
    }
    let scaled =
        Tensor::new(x.shape().to_vec(), numbers)?.zip_broadcast(scale, |x, scale| x * scale)?;
    match shift {
        Some(shift) => scaled.zip_broadcast(shift, |x, shift| x + shift),
        None => Ok(scaled),
    }
}

/// Batch normalisation after training: with the learned means and variances, along the second axis.
fn batch_norm(x: &Tensor, epsilon: f32, learned: [&Tensor; 4]) -> Result<Tensor, String> {
    let mut shape = vec![1; x.shape().len()];
    let channels = x.shape().get(1).ok_or("normalises what has no second axis")?;
    shape[1] = *channels;
    let [scale, shift, mean, variance] = learned.map(|one| one.reshaped(shape.clone()));
    let deviation = variance?.map(|variance| (variance + epsilon).sqrt());
    let normal =
        x.zip_broadcast(&mean?, |x, mean| x - mean)?.zip_broadcast(&deviation, |x, by| x / by)?;
    normal
        .zip_broadcast(&scale?, |x, scale| x * scale)?
        .zip_broadcast(&shift?, |x, shift| x + shift)
}
