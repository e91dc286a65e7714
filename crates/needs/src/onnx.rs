//! ONNX files of networks for tests, written as protocol buffers (onnx.proto) without a library.

/// A layer: its operator, with its constant inputs.
#[derive(Debug, Clone)]
pub enum Layer {
    /// Fully connected layer: matrix of `inputs` rows in row-major order, and the bias.
    Dense(Vec<f32>, Vec<f32>),
    /// Operator with one input, by its name in ONNX: "Tanh", "Relu", "LeakyRelu".
    Operator(&'static str),
}

/// File of a network of consecutive layers, from an input of `[1, inputs]` to an output `[1, n]`.
pub fn network(inputs: usize, layers: &[Layer]) -> Vec<u8> {
    let (mut file, mut name, mut width) = (File::default(), "seen".to_owned(), inputs);
    file.input("seen", &[1, inputs]);
    for (index, layer) in layers.iter().enumerate() {
        let next = format!("out{index}");
        match layer {
            Layer::Operator(operator) => file.node(operator, &[&name], &[&next], &[]),
            Layer::Dense(weights, bias) => {
                let (w, b) = (format!("w{index}"), format!("b{index}"));
                file.floats(&w, &[width, bias.len()], weights);
                file.floats(&b, &[bias.len()], bias);
                width = bias.len();
                file.node("Gemm", &[&name, &w, &b], &[&next], &[]);
            }
        }
        name = next;
    }
    file.output(&name, &[1, width]);
    file.bytes()
}

/// Value of a node's attribute.
#[derive(Debug, Clone, Copy)]
pub enum Attribute {
    /// A whole number attribute.
    Int(i64),
    /// A floating-point number attribute.
    Float(f32),
}

/// Builder of an ONNX file.
#[derive(Debug, Default)]
pub struct File {
    graph: Vec<u8>,
}

impl File {
    /// Add an input of the graph.
    pub fn input(&mut self, name: &str, shape: &[usize]) {
        self.graph.extend(field(11, &value(name, shape)));
    }

    /// Add an output of the graph.
    pub fn output(&mut self, name: &str, shape: &[usize]) {
        self.graph.extend(field(12, &value(name, shape)));
    }

    /// Add a constant of floating-point numbers.
    pub fn floats(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.graph.extend(field(5, &tensor(name, shape, FLOAT, raw)));
    }

    /// Add a constant list of whole numbers.
    pub fn ints(&mut self, name: &str, values: &[i64]) {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.graph.extend(field(5, &tensor(name, &[values.len()], INT64, raw)));
    }

    /// Add a node with the names of its inputs and outputs.
    pub fn node(
        &mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) {
        let inputs = inputs.iter().flat_map(|input| field(1, input.as_bytes()));
        let outputs = outputs.iter().flat_map(|output| field(2, output.as_bytes()));
        let mut node: Vec<u8> = inputs.chain(outputs).collect();
        node.extend(field(4, operator.as_bytes()));
        for (name, attribute) in attributes {
            let mut content = field(1, name.as_bytes());
            match attribute {
                Attribute::Int(value) => content.extend(number(3, *value as u64)),
                Attribute::Float(value) => {
                    content.extend(varint(2 << 3 | 5));
                    content.extend(value.to_le_bytes());
                }
            }
            node.extend(field(5, &content));
        }
        self.graph.extend(field(1, &node));
    }

    /// Content of the finished file.
    pub fn bytes(self) -> Vec<u8> {
        let mut model = number(1, 8);
        model.extend(field(8, &number(2, 17)));
        model.extend(field(7, &self.graph));
        model
    }
}

/// Values FLOAT and INT64 of `TensorProto.DataType`.
const FLOAT: u64 = 1;
const INT64: u64 = 7;

fn tensor(name: &str, shape: &[usize], kind: u64, raw: Vec<u8>) -> Vec<u8> {
    let shape = shape.iter().flat_map(|size| number(1, *size as u64));
    let rest = [number(2, kind), field(8, name.as_bytes()), field(9, &raw)];
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
