//! Gated recurrent units in ONNX's layout: the rows of weights belong to the update gate, the reset gate and the
//! candidate, in this order.

use super::operator::{NodeAttributes, sigmoid};
use super::tensor::{Tensor, shape_text};

/// Attributes of a GRU node.
#[derive(Debug)]
pub(super) struct Gru {
    /// Whether the reset gate applies to the candidate's recurrent product, as in PyTorch (`linear_before_reset`).
    resets_product: bool,
}

/// Number of gates, which divide the rows of weights and sums.
const PARTS: usize = 3;

impl Gru {
    pub(super) fn read(attributes: &NodeAttributes<'_>) -> Result<Self, String> {
        let forward = attributes.text("direction").is_none_or(|direction| direction == "forward");
        let usual = ["activations", "clip", "layout"].iter().all(|name| !attributes.has(name));
        if !forward || !usual {
            return Err(
                "is not a forward GRU with sigmoid and tanh, without clip and layout".to_owned()
            );
        }
        Ok(Self { resets_product: attributes.int("linear_before_reset", 0) != 0 })
    }

    /// Run the units on `[steps, 1, inputs]`; return all outputs, `[steps, 1, 1, units]`, and the last one.
    pub(super) fn run(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, String> {
        let given = |index: usize| inputs.get(index).copied().flatten();
        let (Some(x), Some(w), Some(r)) = (given(0), given(1), given(2)) else {
            return Err("has no input, or no weights".to_owned());
        };
        let ([steps, 1, width], [1, rows, columns], [1, _, units]) =
            (x.shape(), w.shape(), r.shape())
        else {
            return Err(format!("takes in one connection's steps, not {}", shape_text(x.shape())));
        };
        let fits = width == columns && *rows == PARTS * units && r.shape()[1] == *rows;
        let bias = given(3).map_or(vec![0.0; 2 * rows], |bias| bias.numbers().to_vec());
        let mut h = given(5).map_or(vec![0.0; *units], |h| h.numbers().to_vec());
        if !fits || bias.len() != 2 * rows || h.len() != *units || given(4).is_some() {
            return Err("has weights, biases or a memory of other sizes than its units".to_owned());
        }
        let (of_input, of_memory) = bias.split_at(*rows);
        let mut all = Vec::with_capacity(steps * units);
        for step in 0..*steps {
            let input = &x.numbers()[step * width..(step + 1) * width];
            let sums = sums(w.numbers(), input, of_input);
            h = self.next(&sums, r.numbers(), &h, of_memory);
            all.extend_from_slice(&h);
        }
        let last = Tensor::new(vec![1, 1, *units], h)?;
        Ok(vec![Tensor::new(vec![*steps, 1, 1, *units], all)?, last])
    }

    fn next(&self, of_input: &[f32], r: &[f32], h: &[f32], bias: &[f32]) -> Vec<f32> {
        let units = h.len();
        let gates = 2 * units;
        let of_memory = sums(&r[..gates * units], h, &bias[..gates]);
        let gate = |at: usize| sigmoid(of_input[at] + of_memory[at]);
        let reset: Vec<f32> = (units..gates).map(gate).collect();
        let candidate = if self.resets_product {
            let product = sums(&r[gates * units..], h, &bias[gates..]);
            reset.iter().zip(product).map(|(reset, product)| reset * product).collect()
        } else {
            let left: Vec<f32> = reset.iter().zip(h).map(|(reset, h)| reset * h).collect();
            sums(&r[gates * units..], &left, &bias[gates..])
        };
        let unit = |at: usize| {
            let (update, new) = (gate(at), (of_input[gates + at] + candidate[at]).tanh());
            (1.0 - update) * new + update * h[at]
        };
        (0..units).map(unit).collect()
    }
}

/// Product of each row with the input, plus its bias.
fn sums(rows: &[f32], input: &[f32], bias: &[f32]) -> Vec<f32> {
    let sum = |(row, bias): (&[f32], &f32)| {
        // Four partial sums, which the compiler keeps in one register.
        let ((row_fours, row_rest), (input_fours, input_rest)) =
            (row.as_chunks::<4>(), input.as_chunks::<4>());
        let mut four = [0.0; 4];
        for (a, b) in row_fours.iter().zip(input_fours) {
            four.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
        }
        let rest: f32 = row_rest.iter().zip(input_rest).map(|(a, b)| a * b).sum();
        four.iter().sum::<f32>() + rest + bias
    };
    rows.chunks_exact(input.len().max(1)).zip(bias).map(sum).collect()
}
