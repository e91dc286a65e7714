//! Tensors of f32 and the operations that networks are made of.

/// Largest number of values in a tensor: small files could demand very large ones.
const MOST_NUMBERS: usize = 1 << 22;

/// Dense tensor in row-major order: the last axis is the innermost.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    shape: Vec<usize>,
    numbers: Vec<f32>,
}

impl Tensor {
    /// Create a tensor from its values.
    ///
    /// # Errors The shape does not fit the number of values, or has too many.
    pub(super) fn new(shape: Vec<usize>, numbers: Vec<f32>) -> Result<Self, String> {
        if size_of(&shape)? == numbers.len() {
            return Ok(Self { shape, numbers });
        }
        Err(format!("{} values do not make {}", numbers.len(), shape_text(&shape)))
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(super) fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// Apply a function to each value.
    pub(super) fn map(&self, each: impl Fn(f32) -> f32) -> Self {
        Self { shape: self.shape.clone(), numbers: self.numbers.iter().map(|x| each(*x)).collect() }
    }

    pub(super) fn reshaped(&self, shape: Vec<usize>) -> Result<Self, String> {
        Self::new(shape, self.numbers.clone())
    }

    /// Exchange rows and columns of a matrix.
    pub(super) fn transposed(&self) -> Result<Self, String> {
        let [rows, columns] = self.shape[..] else {
            return Err(format!("a matrix has two axes; this is {}", shape_text(&self.shape)));
        };
        let at = |index: usize| self.numbers[index % rows * columns + index / rows];
        Ok(Self { shape: vec![columns, rows], numbers: (0..self.numbers.len()).map(at).collect() })
    }

    /// Index of an axis, which counts from the end if it is negative.
    pub(super) fn axis(&self, axis: i64) -> Result<usize, String> {
        axis_of(axis, self.shape.len())
    }

    /// Number of elements before an axis, on it and behind it.
    pub(super) fn extents(&self, axis: usize) -> [usize; 3] {
        let product = |sizes: &[usize]| sizes.iter().product();
        [product(&self.shape[..axis]), self.shape[axis], product(&self.shape[axis + 1..])]
    }

    /// Combine two tensors element by element; an axis of size 1 is repeated to the size of the other's.
    pub(super) fn zip_broadcast(
        &self,
        other: &Self,
        both: impl Fn(f32, f32) -> f32,
    ) -> Result<Self, String> {
        if self.shape == other.shape {
            let pairs = self.numbers.iter().zip(&other.numbers);
            let numbers = pairs.map(|(a, b)| both(*a, *b)).collect();
            return Ok(Self { shape: self.shape.clone(), numbers });
        }
        let shape = broadcast(&self.shape, &other.shape)?;
        let strides = [strides(&self.shape, shape.len()), strides(&other.shape, shape.len())];
        let mut numbers = Vec::with_capacity(size_of(&shape)?);
        for index in 0..size_of(&shape)? {
            let (mut rest, mut at) = (index, [0, 0]);
            for axis in (0..shape.len()).rev() {
                let along = rest % shape[axis];
                rest /= shape[axis];
                for (at, strides) in at.iter_mut().zip(&strides) {
                    *at += along * strides[axis];
                }
            }
            numbers.push(both(self.numbers[at[0]], other.numbers[at[1]]));
        }
        Ok(Self { shape, numbers })
    }

    /// Multiply by a matrix; all axes before the last one are rows.
    pub(super) fn matmul(&self, matrix: &Self) -> Result<Self, String> {
        let [inputs, outputs] = matrix.shape[..] else {
            return Err(format!(
                "multiplies by {}, which is not a matrix",
                shape_text(&matrix.shape)
            ));
        };
        let Some((width, rows)) = self.shape.split_last().filter(|(width, _)| **width == inputs)
        else {
            return Err(format!(
                "multiplies {} by {}",
                shape_text(&self.shape),
                shape_text(&matrix.shape)
            ));
        };
        let shape = [rows, &[outputs]].concat();
        let mut numbers = vec![0.0; size_of(&shape)?];
        if *width > 0 && outputs > 0 {
            let rows = self.numbers.chunks_exact(*width).zip(numbers.chunks_exact_mut(outputs));
            rows.for_each(|(row, out)| add_product(row, &matrix.numbers, out));
        }
        Ok(Self { shape, numbers })
    }

    /// Concatenate tensors along an axis.
    pub(super) fn concat(all: &[&Self], axis: i64) -> Result<Self, String> {
        let first = all.first().ok_or("concatenates nothing")?;
        let axis = first.axis(axis)?;
        let others = |one: &Self| {
            let mut shape = one.shape.clone();
            (shape.len() > axis).then(|| shape.remove(axis))?;
            Some(shape)
        };
        if all.iter().any(|one| others(one) != others(first)) {
            return Err("concatenates tensors that differ in another axis".to_owned());
        }
        let mut shape = first.shape.clone();
        shape[axis] = all.iter().map(|one| one.shape[axis]).sum();
        let mut numbers = Vec::with_capacity(size_of(&shape)?);
        for outer in 0..first.extents(axis)[0] {
            for one in all {
                let [_, along, inner] = one.extents(axis);
                let width = along * inner;
                numbers.extend_from_slice(&one.numbers[outer * width..(outer + 1) * width]);
            }
        }
        Ok(Self { shape, numbers })
    }

    /// Cut the range `from..to` out of an axis.
    pub(super) fn slice(&self, axis: usize, from: usize, to: usize) -> Result<Self, String> {
        let [outer, along, inner] = self.extents(axis);
        let mut shape = self.shape.clone();
        shape[axis] = to - from;
        let rows = (0..outer).flat_map(|row| {
            let begin = row * along * inner;
            &self.numbers[begin + from * inner..begin + to * inner]
        });
        Self::new(shape, rows.copied().collect())
    }
}

/// Index of one of `axes` axes, which counts from the end if it is negative.
pub(super) fn axis_of(axis: i64, axes: usize) -> Result<usize, String> {
    let found = if axis < 0 { axis + axes as i64 } else { axis };
    let found = usize::try_from(found).ok().filter(|found| *found < axes);
    found.ok_or_else(|| format!("has no axis {axis}: there are {axes}"))
}

/// Add the product of a row and a matrix to `out`, four rows of the matrix at once, so that the compiler can use
/// vector instructions over several columns. The order of the sum is fixed, so that results are equal on every
/// machine.
fn add_product(row: &[f32], matrix: &[f32], out: &mut [f32]) {
    let width = out.len();
    let (fours, rest) = row.as_chunks::<4>();
    let (matrix, matrix_rest) = matrix.split_at(fours.len() * 4 * width);
    for (x, four) in fours.iter().zip(matrix.chunks_exact(4 * width)) {
        let (a, four) = four.split_at(width);
        let (b, four) = four.split_at(width);
        let (c, d) = four.split_at(width);
        for ((((out, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *out += (x[0] * a + x[1] * b) + (x[2] * c + x[3] * d);
        }
    }
    for (x, one) in rest.iter().zip(matrix_rest.chunks_exact(width)) {
        out.iter_mut().zip(one).for_each(|(out, weight)| *out += x * weight);
    }
}

fn size_of(shape: &[usize]) -> Result<usize, String> {
    let size = shape.iter().try_fold(1_usize, |all, size| all.checked_mul(*size));
    let size = size.filter(|size| (1..=MOST_NUMBERS).contains(size));
    size.ok_or_else(|| format!("{} are no numbers, or more than {MOST_NUMBERS}", shape_text(shape)))
}

fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let axes = a.len().max(b.len());
    let padded = |shape: &[usize]| [&vec![1; axes - shape.len()], shape].concat();
    let pairs = padded(a).into_iter().zip(padded(b)).map(|pair| match pair {
        (a, b) if a == b => Some(a),
        (1, size) | (size, 1) => Some(size),
        _ => None,
    });
    let shape: Option<Vec<usize>> = pairs.collect();
    shape.ok_or_else(|| format!("{} and {} do not fit", shape_text(a), shape_text(b)))
}

/// Distance between neighbours along each of `axes` axes; 0 along an axis that is repeated.
fn strides(shape: &[usize], axes: usize) -> Vec<usize> {
    let mut strides = vec![0; axes];
    let mut stride = 1;
    for (place, size) in strides.iter_mut().rev().zip(shape.iter().rev()) {
        *place = if *size == 1 { 0 } else { stride };
        stride *= size;
    }
    strides
}

/// Text of a shape for messages, such as "2 x 3".
pub(super) fn shape_text(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    if sizes.is_empty() { "one number".to_owned() } else { sizes.join(" x ") }
}
