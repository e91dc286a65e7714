//! Neural network that decides, read from an ONNX file.
//!
//! It is run by this crate rather than by a library: it computes in the caller's thread, the same sums in the same
//! order on every machine, and a decision takes microseconds.

mod format;
mod gru;
mod operator;
mod tensor;

use std::collections::BTreeMap;
use std::fmt;

use prost::Message as _;

use crate::card::Card;
use crate::decider::Model;
use crate::error::PolicyError;
use format::{Graph, Node, TensorFile};
use operator::{NodeAttributes, Operator};
use tensor::{Tensor, shape_text};

/// Memory of a recurrent network for one connection: one list of values for each `network.memory` of the card.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory(pub Vec<Vec<f32>>);

impl Memory {
    /// Create the memory of a connection that has not reported yet: zeros.
    pub fn new(card: &Card) -> Self {
        Self(card.network.memory.iter().map(|memory| vec![0.0; memory.size]).collect())
    }
}

/// Network of an ONNX file. It computes in the caller's thread and is deterministic.
pub struct Network {
    constants: Vec<Tensor>,
    steps: Vec<Step>,
    /// Number of computed values; constants are kept separately.
    computed_count: usize,
    observation: Input,
    output: ValueRef,
    memory: Vec<(Input, ValueRef)>,
}

/// Input of the graph: the observation, or memory.
struct Input {
    index: usize,
    shape: Vec<usize>,
}

/// Location of a value that a node reads.
#[derive(Debug, Clone, Copy)]
enum ValueRef {
    Constant(usize),
    Computed(usize),
}

/// A node of the graph, in the order of execution.
struct Step {
    operator: Operator,
    /// Name of the operator, escaped, for messages.
    name: String,
    inputs: Vec<Option<ValueRef>>,
    outputs: Vec<usize>,
}

/// Largest number of nodes, and of values computed per decision: small files could demand very much.
const MOST_NODES: usize = 2_000;
const MOST_COMPUTED: usize = 1 << 24;

impl Network {
    /// Read a network whose inputs and outputs fit the card.
    ///
    /// # Errors
    /// [`PolicyError::Network`]: the file is invalid, or does not fit the card.
    pub fn read(card: &Card, onnx: &[u8]) -> Result<Self, PolicyError> {
        let model = format::Model::decode(onnx).map_err(|error| {
            let error = error.to_string();
            PolicyError::network(format!("is not an ONNX network: {}", error.escape_debug()))
        })?;
        let graph = model.graph.ok_or_else(|| PolicyError::network("is not an ONNX network"))?;
        let network = Reader::default().read(card, &graph).map_err(PolicyError::network)?;
        network.run_on_zeros(card).map_err(PolicyError::network)?;
        Ok(network)
    }

    /// Run the network once on zeros, so that mismatches of shapes show early.
    fn run_on_zeros(&self, card: &Card) -> Result<(), String> {
        let mut memory = Memory::new(card);
        self.output_of(&vec![0.0; card.inputs()], &mut memory)?;
        let sizes = card.network.memory.iter().map(|entry| entry.size);
        if memory.0.iter().map(Vec::len).ne(sizes) {
            return Err("has a memory of another size than the card says".to_owned());
        }
        Ok(())
    }

    fn output_of(&self, observation: &[f32], memory: &mut Memory) -> Result<f64, String> {
        let mut computed: Vec<Option<Tensor>> = vec![None; self.computed_count];
        let remembered =
            memory.0.iter().zip(&self.memory).map(|(values, (input, _))| (input, &values[..]));
        for (input, values) in std::iter::once((&self.observation, observation)).chain(remembered) {
            computed[input.index] = Some(Tensor::new(input.shape.clone(), values.to_vec())?);
        }
        let mut numbers = 0;
        for step in &self.steps {
            let inputs: Vec<_> =
                step.inputs.iter().map(|place| self.at((*place)?, &computed)).collect();
            let outputs = step.operator.run(&inputs);
            let outputs =
                outputs.map_err(|error| format!("cannot be run: `{}` {error}", step.name))?;
            numbers += outputs.iter().map(|one| one.numbers().len()).sum::<usize>();
            if numbers > MOST_COMPUTED {
                return Err(format!("cannot be run: computes more than {MOST_COMPUTED} numbers"));
            }
            for (place, tensor) in step.outputs.iter().zip(outputs) {
                computed[*place] = Some(tensor);
            }
        }
        let at = |place: ValueRef| {
            self.at(place, &computed)
                .ok_or_else(|| "has an output that no node computes".to_owned())
        };
        let output = at(self.output)?.numbers().first().copied();
        for (values, (_, place)) in memory.0.iter_mut().zip(&self.memory) {
            *values = at(*place)?.numbers().to_vec();
        }
        output.map(f64::from).ok_or_else(|| "has an output without numbers".to_owned())
    }

    fn at<'t>(&'t self, place: ValueRef, computed: &'t [Option<Tensor>]) -> Option<&'t Tensor> {
        match place {
            ValueRef::Constant(at) => self.constants.get(at),
            ValueRef::Computed(at) => computed.get(at)?.as_ref(),
        }
    }
}

/// Names defined so far while a file is read.
#[derive(Default)]
struct Reader {
    places: BTreeMap<String, ValueRef>,
    constants: Vec<Tensor>,
    computed: usize,
    whole: BTreeMap<String, Vec<i64>>,
    single: BTreeMap<String, f32>,
}

impl Reader {
    fn read(mut self, card: &Card, graph: &Graph) -> Result<Network, String> {
        if graph.nodes.len() > MOST_NODES {
            return Err(format!("has {} nodes; at most {MOST_NODES}", graph.nodes.len()));
        }
        for constant in &graph.constants {
            self.constant(&constant.name, constant)?;
        }
        let (observation, remembered) = self.inputs(card, graph)?;
        let mut steps = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let name = node.operator.escape_debug().to_string();
            let step =
                self.step(node, &name).map_err(|error| format!("its operator `{name}` {error}"))?;
            steps.extend(step);
        }
        let named = |name: &String| {
            let found =
                self.places.get(name).filter(|_| graph.outputs.iter().any(|one| one.name == *name));
            found.copied().ok_or_else(|| format!("has no output called `{}`", name.escape_debug()))
        };
        let outputs = card.network.memory.iter().map(|entry| named(&entry.output));
        let outputs: Vec<ValueRef> = outputs.collect::<Result<_, _>>()?;
        let remembers =
            |name: &String| card.network.memory.iter().any(|entry| entry.output == *name);
        let output = graph.outputs.iter().find(|one| !remembers(&one.name));
        let output = named(&output.ok_or("has no output in addition to the card's memory")?.name)?;
        let memory = remembered.into_iter().zip(outputs).collect();
        Ok(Network {
            constants: self.constants,
            steps,
            computed_count: self.computed,
            observation,
            output,
            memory,
        })
    }

    /// Find the input for observations and the inputs for memory. Older files also list constants among the
    /// inputs, which are skipped.
    fn inputs(&mut self, card: &Card, graph: &Graph) -> Result<(Input, Vec<Input>), String> {
        let given = graph.inputs.iter().filter(|input| !self.places.contains_key(&input.name));
        let given: Vec<_> = given.collect();
        let mut remembered = Vec::new();
        for entry in &card.network.memory {
            let found = given.iter().find(|input| input.name == entry.input);
            let found = found.ok_or_else(|| format!("has no input called `{}`", entry.input))?;
            remembered.push(self.input(found, entry.size)?);
        }
        let others = given.iter().filter(|input| !self.places.contains_key(&input.name));
        let [observation] = others.copied().collect::<Vec<_>>()[..] else {
            return Err(format!(
                "has {} inputs in addition to the {} of the card's memory; expected one",
                given.len() - remembered.len(),
                remembered.len()
            ));
        };
        Ok((self.input(observation, card.inputs())?, remembered))
    }

    fn input(&mut self, info: &format::ValueInfo, size: usize) -> Result<Input, String> {
        let mut shape = info.shape();
        if shape.is_empty() {
            shape = vec![1, size];
        }
        if shape.iter().try_fold(1_usize, |all, size| all.checked_mul(*size)) != Some(size) {
            let name = info.name.escape_debug();
            return Err(format!(
                "`{name}` holds {} numbers; the card has {size}",
                shape_text(&shape)
            ));
        }
        Ok(Input { index: self.computed(&info.name), shape })
    }

    fn computed(&mut self, name: &str) -> usize {
        self.places.insert(name.to_owned(), ValueRef::Computed(self.computed));
        self.computed += 1;
        self.computed - 1
    }

    fn constant(&mut self, name: &str, file: &TensorFile) -> Result<(), String> {
        if file.is_whole_numbers() {
            self.whole.insert(name.to_owned(), file.whole_numbers()?);
            return Ok(());
        }
        let (shape, numbers) = file.numbers()?;
        if let [number] = numbers[..] {
            self.single.insert(name.to_owned(), number);
        }
        let tensor = Tensor::new(shape, numbers)?;
        self.keep(name, tensor);
        Ok(())
    }

    fn keep(&mut self, name: &str, tensor: Tensor) {
        self.constants.push(tensor);
        self.places.insert(name.to_owned(), ValueRef::Constant(self.constants.len() - 1));
    }

    /// Read a node; `None` if it only defines a constant.
    fn step(&mut self, node: &Node, name: &str) -> Result<Option<Step>, String> {
        if node.operator == "Constant" {
            let file = node.attributes.iter().find_map(|attribute| attribute.tensor.as_ref());
            let (Some(file), [output]) = (file, &node.outputs[..]) else {
                return Err("does not hold one tensor".to_owned());
            };
            return self.constant(output, file).map(|()| None);
        }
        let mut operator = Operator::read(&NodeAttributes::new(node, &self.whole, &self.single))?;
        let mut inputs = Vec::new();
        for input in node.inputs.iter().take(operator.takes()) {
            let place = self.places.get(input).copied();
            if place.is_none() && !input.is_empty() {
                let input = input.escape_debug();
                return Err(format!("reads `{input}`, which no node before it defines"));
            }
            inputs.push(place);
        }
        self.transpose_constant(&mut operator, &mut inputs)?;
        let outputs = node.outputs.iter().map(|output| self.computed(output)).collect();
        Ok(Some(Step { operator, name: name.to_owned(), inputs, outputs }))
    }

    /// Transpose a constant matrix once rather than at each multiplication.
    fn transpose_constant(
        &mut self,
        operator: &mut Operator,
        inputs: &mut [Option<ValueRef>],
    ) -> Result<(), String> {
        let Operator::Gemm { transposes: [_, transpose], .. } = operator else { return Ok(()) };
        if let [_, Some(ValueRef::Constant(at)), ..] = inputs
            && *transpose
        {
            self.constants.push(self.constants[*at].transposed()?);
            *at = self.constants.len() - 1;
            *transpose = false;
        }
        Ok(())
    }
}

impl Model for Network {
    fn run(&self, observation: &[f32], memory: &mut Memory) -> Option<f64> {
        self.output_of(observation, memory).ok()
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("shape", &self.observation.shape).finish_non_exhaustive()
    }
}
