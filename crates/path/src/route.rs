//! Shortest routes over a graph of satellites and gateways.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::handover::Link;

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
    /// Its length, not negative: here the one-way delay in seconds. Infinite where the edge is closed.
    pub weight: f64,
}

impl Edge {
    /// Whether the edge may be used now; an edge whose length is not known is closed.
    pub fn is_open(&self) -> bool {
        self.weight < f64::INFINITY
    }
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

    /// Gives every edge the weight that `weight(from, to)` says; returns whether an edge was opened
    /// or closed.
    pub fn reweigh(&mut self, weight: impl Fn(u32, u32) -> f64) -> bool {
        let mut changed = false;
        for (from, ends) in (0..).zip(self.starts.windows(2)) {
            for edge in &mut self.edges[ends[0] as usize..ends[1] as usize] {
                let was_open = edge.is_open();
                edge.weight = weight(from, edge.to);
                changed |= edge.is_open() != was_open;
            }
        }
        changed
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
                for edge in self.edges(node).iter().filter(|edge| edge.is_open()) {
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

    /// The links through which the path between two ends is shortest; of equals the lowest
    /// satellites.
    pub fn nearest_pair(&mut self, graph: &Graph, from: &[Link], to: &[Link]) -> Option<[Link; 2]> {
        self.begin(graph.nodes());
        for link in from {
            self.reach(link.satellite, link.satellite, link.delay_s);
        }
        let mut best: Option<(f64, Link)> = None;
        while let Some(Reverse((bits, node))) = self.queue.pop() {
            let distance = f64::from_bits(bits);
            // What is left is farther away than the best without its last link.
            if best.is_some_and(|(shortest, _)| distance >= shortest) {
                break;
            }
            if distance > self.reached[node as usize].distance {
                continue;
            }
            if let Ok(index) = to.binary_search_by_key(&node, |link| link.satellite) {
                let total = distance + to[index].delay_s;
                if best.is_none_or(|(shortest, _)| total < shortest) {
                    best = Some((total, to[index]));
                }
            }
            for edge in graph.edges(node).iter().filter(|edge| edge.is_open()) {
                self.reach(edge.to, node, distance + edge.weight);
            }
        }
        let (_, last) = best?;
        let first = self.origin(last.satellite);
        from.iter().find(|link| link.satellite == first).map(|link| [*link, last])
    }

    /// Finds the shortest routes from all of `from` to every node; [`Router::reached`] and
    /// [`Router::route_back`] tell about them.
    pub fn search_all(&mut self, graph: &Graph, from: &[Link]) {
        self.begin(graph.nodes());
        for link in from {
            self.reach(link.satellite, link.satellite, link.delay_s);
        }
        while let Some(Reverse((bits, node))) = self.queue.pop() {
            let distance = f64::from_bits(bits);
            if distance > self.reached[node as usize].distance {
                continue;
            }
            for edge in graph.edges(node).iter().filter(|edge| edge.is_open()) {
                self.reach(edge.to, node, distance + edge.weight);
            }
        }
    }

    /// The distance at which the last search reached a node; `None` where it did not.
    pub fn reached(&self, node: u32) -> Option<f64> {
        let reached = self.reached.get(node as usize)?;
        (reached.search == self.search).then_some(reached.distance)
    }

    /// The nodes of the route by which the last search reached `node`, from there backwards.
    pub fn route_back(&self, node: u32) -> impl Iterator<Item = u32> {
        let before = |node: &u32| {
            let previous = self.reached[*node as usize].previous;
            (previous != *node).then_some(previous)
        };
        std::iter::successors(Some(node), before)
    }

    /// Where the search began that reached a node.
    fn origin(&self, node: u32) -> u32 {
        self.route_back(node).last().unwrap_or(node)
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
            for edge in graph.edges(node).iter().filter(|edge| edge.is_open()) {
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
