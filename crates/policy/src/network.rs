//! The network that decides, an ONNX file.

use std::fmt;

use rten::{Dimension, Model as Graph, ModelOptions, NodeId, RunOptions, ThreadPool, ValueOrView};
use rten_tensor::TensorView;
use rten_tensor::prelude::*;

use crate::card::Card;
use crate::error::PolicyError;
use crate::pilot::Model;

/// What a network remembers of a connection: one list for each `network.memory` of the card.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory(pub Vec<Vec<f32>>);

impl Memory {
    /// That of a connection that has not reported yet: zeros.
    pub fn new(card: &Card) -> Self {
        Self(card.network.memory.iter().map(|memory| vec![0.0; memory.size]).collect())
    }
}

/// A network of an ONNX file. It computes in one thread, and the same output for the same input.
pub struct Network {
    graph: Graph,
    seen: NodeId,
    output: NodeId,
    /// The input and the output of each memory.
    memory: Vec<(NodeId, NodeId)>,
    /// The sizes of the input's axes.
    shape: Vec<usize>,
    /// Those of each memory's input.
    memory_shapes: Vec<Vec<usize>>,
    threads: std::sync::Arc<ThreadPool>,
}

impl Network {
    /// Reads a network that sees and remembers what the card says.
    ///
    /// # Errors
    /// [`PolicyError::Network`].
    pub fn read(card: &Card, onnx: &[u8]) -> Result<Self, PolicyError> {
        // Optimising runs parts of the network in the library's own threads, which a process that forks later, as the live
        // engine does, has no longer.
        let loaded = ModelOptions::with_all_ops().enable_optimization(false).load(onnx.to_vec());
        let graph = loaded.map_err(|error| {
            PolicyError::network(format!("is no network that can be run: {error}"))
        })?;
        let named = |name: &str, of: &[NodeId], what: &str| {
            let found = graph.find_node(name).filter(|node| of.contains(node));
            found.ok_or_else(|| PolicyError::network(format!("has no {what} called `{name}`")))
        };
        let mut memory = Vec::new();
        for entry in &card.network.memory {
            let input = named(&entry.input, graph.input_ids(), "input")?;
            memory.push((input, named(&entry.output, graph.output_ids(), "output")?));
        }
        let others = |all: &[NodeId], taken: &dyn Fn(&NodeId) -> bool| {
            all.iter().copied().filter(|node| !taken(node)).collect::<Vec<_>>()
        };
        let inputs =
            others(graph.input_ids(), &|node| memory.iter().any(|(input, _)| input == node));
        let outputs =
            others(graph.output_ids(), &|node| memory.iter().any(|(_, output)| output == node));
        let ([seen], [output, ..]) = (&inputs[..], &outputs[..]) else {
            return Err(PolicyError::network(format!(
                "has {} inputs and {} outputs beside the card's memory; expected one input, and an output",
                inputs.len(),
                outputs.len()
            )));
        };
        let (seen, output) = (*seen, *output);
        let shape = shape(&graph, seen, card.inputs())?;
        let memory_shapes = memory
            .iter()
            .zip(&card.network.memory)
            .map(|((input, _), entry)| self::shape(&graph, *input, entry.size))
            .collect::<Result<_, _>>()?;
        let threads = std::sync::Arc::new(ThreadPool::with_num_threads(1));
        let network = Self { graph, seen, output, memory, shape, memory_shapes, threads };
        network.try_out(card)?;
        Ok(network)
    }

    /// Runs it once on zeros: what does not fit shows now.
    fn try_out(&self, card: &Card) -> Result<(), PolicyError> {
        let mut memory = Memory::new(card);
        let zeros = vec![0.0; card.inputs()];
        let sizes: Vec<usize> = memory.0.iter().map(Vec::len).collect();
        self.output_of(&zeros, &mut memory).map_err(PolicyError::network)?;
        if memory.0.iter().map(Vec::len).ne(sizes) {
            return Err(PolicyError::network(
                "remembers another number of values than the card says",
            ));
        }
        Ok(())
    }

    fn output_of(&self, seen: &[f32], memory: &mut Memory) -> Result<f64, String> {
        let mut inputs = vec![(self.seen, view(seen, &self.shape))];
        let remembered = memory.0.iter().zip(&self.memory).zip(&self.memory_shapes);
        inputs
            .extend(remembered.map(|((values, (input, _)), shape)| (*input, view(values, shape))));
        let outputs: Vec<NodeId> = std::iter::once(self.output)
            .chain(self.memory.iter().map(|(_, output)| *output))
            .collect();
        let options =
            RunOptions::default().with_thread_pool(Some(std::sync::Arc::clone(&self.threads)));
        let said = self.graph.run(inputs, &outputs, Some(options));
        let mut said = said.map_err(|error| format!("cannot be run: {error}"))?.into_iter();
        let numbers = |value: Option<rten::Value>| {
            let tensor = value.and_then(|value| value.into_tensor::<f32>());
            tensor
                .map(|tensor| tensor.to_vec())
                .ok_or_else(|| "says something else than numbers".to_owned())
        };
        let output = numbers(said.next())?;
        for values in &mut memory.0 {
            *values = numbers(said.next())?;
        }
        let first = output.first().copied();
        first.map(f64::from).ok_or_else(|| "has an output without numbers".to_owned())
    }
}

fn view<'v>(data: &'v [f32], shape: &[usize]) -> ValueOrView<'v> {
    TensorView::from_data(shape, data).into()
}

/// The sizes of the axes of an input that holds `size` numbers; an axis of any size is the batch's, 1.
fn shape(graph: &Graph, input: NodeId, size: usize) -> Result<Vec<usize>, PolicyError> {
    let info = graph.node_info(input);
    let name = info.as_ref().and_then(|info| info.name()).unwrap_or("its input").to_owned();
    let axes = info.and_then(|info| info.shape()).unwrap_or_default();
    let mut shape: Vec<usize> = axes
        .iter()
        .map(|axis| match axis {
            Dimension::Fixed(size) => *size,
            Dimension::Symbolic(_) => 1,
        })
        .collect();
    if shape.is_empty() {
        shape = vec![1, size];
    }
    if shape.iter().product::<usize>() == size {
        return Ok(shape);
    }
    let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
    Err(PolicyError::network(format!(
        "`{name}` holds {} numbers; the card has {size}",
        shape.join(" x ")
    )))
}

impl Model for Network {
    fn run(&self, seen: &[f32], memory: &mut Memory) -> Option<f64> {
        self.output_of(seen, memory).ok()
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("shape", &self.shape).finish_non_exhaustive()
    }
}
