//! Parts of the ONNX format that are read: messages of onnx.proto with the field numbers.

use prost::Message;

/// Message `ModelProto` of onnx.proto: the whole file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<Graph>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<Node>,
    #[prost(message, repeated, tag = "5")]
    pub(super) constants: Vec<TensorFile>,
    #[prost(message, repeated, tag = "11")]
    pub(super) inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) outputs: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(super) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) outputs: Vec<String>,
    #[prost(string, tag = "4")]
    pub(super) operator: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attributes: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub(super) domain: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(float, tag = "2")]
    pub(super) float: f32,
    #[prost(int64, tag = "3")]
    pub(super) int: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) text: Vec<u8>,
    #[prost(message, optional, tag = "5")]
    pub(super) tensor: Option<TensorFile>,
    #[prost(int64, repeated, tag = "8")]
    pub(super) ints: Vec<i64>,
}

/// Message `TensorProto` of onnx.proto: a constant.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorFile {
    #[prost(int64, repeated, tag = "1")]
    pub(super) shape: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) kind: i32,
    #[prost(float, repeated, tag = "4")]
    pub(super) floats: Vec<f32>,
    #[prost(int64, repeated, tag = "7")]
    pub(super) ints: Vec<i64>,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    #[prost(bytes = "vec", tag = "9")]
    pub(super) raw: Vec<u8>,
    /// Location of the data; 1: in another file.
    #[prost(int32, tag = "14")]
    pub(super) location: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    kind: Option<ValueKind>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueKind {
    #[prost(message, optional, tag = "1")]
    tensor: Option<TensorKind>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorKind {
    #[prost(message, optional, tag = "2")]
    shape: Option<ShapeFile>,
}

#[derive(Clone, PartialEq, Message)]
struct ShapeFile {
    #[prost(message, repeated, tag = "1")]
    axes: Vec<Axis>,
}

#[derive(Clone, PartialEq, Message)]
struct Axis {
    /// Size of the axis; 0 if it has a name instead.
    #[prost(int64, tag = "1")]
    size: i64,
}

impl ValueInfo {
    /// Sizes of the axes; an axis of unknown size is the batch's and counts as 1.
    pub(super) fn shape(&self) -> Vec<usize> {
        let shape = self.kind.as_ref().and_then(|kind| kind.tensor.as_ref()?.shape.as_ref());
        let axes = shape.into_iter().flat_map(|shape| &shape.axes);
        axes.map(|axis| usize::try_from(axis.size).unwrap_or(1).max(1)).collect()
    }
}

/// Values FLOAT and INT64 of `TensorProto.DataType`.
const FLOAT: i32 = 1;
const INT64: i32 = 7;

impl TensorFile {
    /// Shape and values of a FLOAT tensor.
    pub(super) fn numbers(&self) -> Result<(Vec<usize>, Vec<f32>), String> {
        if self.kind != FLOAT {
            return Err(self.wrong("is of another kind than FLOAT"));
        }
        self.whole(&self.floats, f32::from_le_bytes)
    }

    /// Values of an INT64 tensor, such as axes and sizes.
    pub(super) fn whole_numbers(&self) -> Result<Vec<i64>, String> {
        if self.kind != INT64 {
            return Err(self.wrong("is of another kind than INT64"));
        }
        self.whole(&self.ints, i64::from_le_bytes).map(|(_, values)| values)
    }

    /// Whether the values are INT64, as axes and sizes are.
    pub(super) fn is_whole_numbers(&self) -> bool {
        self.kind == INT64
    }

    fn whole<T: Copy, const N: usize>(
        &self,
        listed: &[T],
        read: impl Fn([u8; N]) -> T,
    ) -> Result<(Vec<usize>, Vec<T>), String> {
        if self.location != 0 {
            return Err(self.wrong("is in another file: store the network in one"));
        }
        let (raw, rest) = self.raw.as_chunks::<N>();
        let values: Vec<T> = if self.raw.is_empty() {
            listed.to_vec()
        } else {
            raw.iter().map(|one| read(*one)).collect()
        };
        let sizes = self.shape.iter().map(|size| usize::try_from(*size).ok());
        let shape: Option<Vec<usize>> = sizes.collect();
        let shape = shape.ok_or_else(|| self.wrong("has an axis of a negative size"))?;
        let product = shape.iter().try_fold(1_usize, |all, size| all.checked_mul(*size));
        if product != Some(values.len()) || !rest.is_empty() {
            return Err(self.wrong("holds another number of values than its shape says"));
        }
        Ok((shape, values))
    }

    fn wrong(&self, what: &str) -> String {
        format!("its constant `{}` {what}", self.name.escape_debug())
    }
}
