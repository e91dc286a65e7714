//! Networks for tests: ONNX files (protocol buffers of onnx.proto) without a library that writes them.

/// A layer: its operator, and what else it takes in beside the layer's input.
#[derive(Debug, Clone)]
pub enum Layer {
    /// A matrix of `inputs` rows, row by row, and what is added.
    Dense(Vec<f32>, Vec<f32>),
    /// An operator of one input, by its name in ONNX: "Tanh", "Relu", "LeakyRelu".
    Operator(&'static str),
}

/// A network of layers, one behind another, from an input of `[1, inputs]` to an output `[1, n]`.
pub fn network(inputs: usize, layers: &[Layer]) -> Vec<u8> {
    let (mut graph, mut constants) = (Vec::new(), Vec::new());
    let (mut name, mut width) = ("seen".to_owned(), inputs);
    for (index, layer) in layers.iter().enumerate() {
        let next = format!("out{index}");
        let node = match layer {
            Layer::Operator(operator) => node(operator, &[&name], &next),
            Layer::Dense(weights, bias) => {
                let (w, b) = (format!("w{index}"), format!("b{index}"));
                let size = bias.len();
                constants.extend(field(5, &tensor(&w, &[width, size], weights)));
                constants.extend(field(5, &tensor(&b, &[size], bias)));
                width = size;
                node("Gemm", &[&name, &w, &b], &next)
            }
        };
        graph.extend(field(1, &node));
        name = next;
    }
    graph.extend(field(2, b"test"));
    graph.extend(constants);
    graph.extend(field(11, &value("seen", &[1, inputs])));
    graph.extend(field(12, &value(&name, &[1, width])));
    let mut model = number(1, 8);
    model.extend(field(8, &number(2, 17)));
    model.extend(field(7, &graph));
    model
}

fn node(operator: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|input| field(1, input.as_bytes()));
    inputs.chain(field(2, output.as_bytes())).chain(field(4, operator.as_bytes())).collect()
}

/// FLOAT of `TensorProto.DataType`.
const FLOAT: u64 = 1;

fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Vec<u8> {
    let shape = shape.iter().flat_map(|size| number(1, *size as u64));
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let rest = [number(2, FLOAT), field(8, name.as_bytes()), field(9, &raw)];
    shape.chain(rest.into_iter().flatten()).collect()
}

fn value(name: &str, shape: &[usize]) -> Vec<u8> {
    let sizes: Vec<u8> = shape.iter().flat_map(|size| field(1, &number(1, *size as u64))).collect();
    let mut tensor = number(1, FLOAT);
    tensor.extend(field(2, &sizes));
    let mut value = field(1, name.as_bytes());
    value.extend(field(2, &field(1, &tensor)));
    value
}

fn number(id: u64, value: u64) -> Vec<u8> {
    let mut bytes = varint(id << 3);
    bytes.extend(varint(value));
    bytes
}

fn field(id: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = varint(id << 3 | 2);
    bytes.extend(varint(content.len() as u64));
    bytes.extend(content);
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
