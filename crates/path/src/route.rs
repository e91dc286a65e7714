//! Shortest routes over a graph of satellites and gateways.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A directed graph with weights, each node's edges side by side (compressed sparse rows).
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Where each node's edges begin in `edges`; one more than there are nodes.
    starts: Vec<u32>,
    edges: Vec<Edge>,
}

/// An edge to a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// The node it leads to.
    pub to: u32,
    /// Its length, not negative: here the one-way delay in seconds.
    pub weight: f64,
}

impl Graph {
    /// Replaces everything by the undirected `links` (two nodes and a weight) between `nodes` nodes.
    pub fn rebuild(&mut self, nodes: usize, links: &[(u32, u32, f64)]) {
        // Count, sum up, fill from the back: a counting sort by node.
        self.starts.clear();
        self.starts.resize(nodes + 1, 0);
        for (a, b, _) in links {
            self.starts[*a as usize] += 1;
            self.starts[*b as usize] += 1;
        }
        let mut total = 0;
        for start in &mut self.starts {
            total += *start;
            *start = total;
        }
        self.edges.clear();
        self.edges.resize(total as usize, Edge { to: 0, weight: 0.0 });
        for (a, b, weight) in links.iter().rev().copied() {
            for (from, to) in [(a, b), (b, a)] {
                let start = &mut self.starts[from as usize];
                *start -= 1;
                self.edges[*start as usize] = Edge { to, weight };
            }
        }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The edges of a node.
    pub fn edges(&self, node: u32) -> &[Edge] {
        let node = node as usize;
        &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Gives every edge the weight that `weight(from, to)` says.
    pub fn reweigh(&mut self, weight: impl Fn(u32, u32) -> f64) {
        for (from, ends) in (0..).zip(self.starts.windows(2)) {
            for edge in &mut self.edges[ends[0] as usize..ends[1] as usize] {
                edge.weight = weight(from, edge.to);
            }
        }
    }

    /// Writes into `parts` for each node the lowest node that it has a route to.
    pub fn parts(&self, parts: &mut Vec<u32>) {
        const UNKNOWN: u32 = u32::MAX;
        parts.clear();
        parts.resize(self.nodes(), UNKNOWN);
        let mut pending = Vec::new();
        for root in 0..self.nodes() as u32 {
            if parts[root as usize] != UNKNOWN {
                continue;
            }
            parts[root as usize] = root;
            pending.push(root);
            while let Some(node) = pending.pop() {
                for edge in self.edges(node) {
                    let part = &mut parts[edge.to as usize];
                    if *part == UNKNOWN {
                        *part = root;
                        pending.push(edge.to);
                    }
                }
            }
        }
    }
}

/// Dijkstra's algorithm with buffers that are used again at each step.
///
/// Of routes with the same length it finds the one whose nodes were reached first; nodes at the same
/// distance are taken in ascending order.
#[derive(Debug, Clone, Default)]
pub struct Router {
    reached: Vec<Reached>,
    /// Which search an entry of `reached` belongs to, so that none has to be wiped.
    search: u32,
    /// Distances as the bits of a non-negative float, which are ordered as the float is.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    search: u32,
    previous: u32,
    distance: f64,
}

impl Router {
    /// Writes the nodes of the shortest route into `route`, both ends included, and returns its
    /// length; `None` and an empty route where there is none.
    pub fn shortest(
        &mut self,
        graph: &Graph,
        from: u32,
        to: u32,
        route: &mut Vec<u32>,
    ) -> Option<f64> {
        route.clear();
        let length = self.search(graph, from, to)?;
        let mut node = to;
        while node != from {
            route.push(node);
            node = self.reached[node as usize].previous;
        }
        route.push(from);
        route.reverse();
        Some(length)
    }

    fn search(&mut self, graph: &Graph, from: u32, to: u32) -> Option<f64> {
        self.begin(graph.nodes());
        self.reach(from, from, 0.0);
        while let Some(Reverse((bits, node))) = self.queue.pop() {
            let distance = f64::from_bits(bits);
            if node == to {
                return Some(distance);
            }
            if distance > self.reached[node as usize].distance {
                continue;
            }
            for edge in graph.edges(node) {
                self.reach(edge.to, node, distance + edge.weight);
            }
        }
        None
    }

    fn begin(&mut self, nodes: usize) {
        self.queue.clear();
        if self.reached.len() != nodes || self.search == u32::MAX {
            self.reached.clear();
            self.reached.resize(nodes, Reached::default());
            self.search = 0;
        }
        self.search += 1;
    }

    fn reach(&mut self, node: u32, previous: u32, distance: f64) {
        let known = &mut self.reached[node as usize];
        if known.search != self.search || distance < known.distance {
            *known = Reached { search: self.search, previous, distance };
            self.queue.push(Reverse((distance.to_bits(), node)));
        }
    }
}
