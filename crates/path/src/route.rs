//! Shortest routes over a graph of satellites and gateways.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::handover::Link;

/// Weighted graph in compressed sparse rows. Each link is an edge in both directions, with the same weight.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Index in `edges` of each node's first edge, and at the end the number of edges.
    starts: Vec<u32>,
    edges: Vec<Edge>,
    /// Indices in `edges` of both directions of each link.
    links: Vec<[u32; 2]>,
    has_negligible_edge: bool,
}

/// Weight below which a link may not change a distance: sums of up to a thousand seconds are exact to a ten-trillionth.
const NEGLIGIBLE: f64 = 1e-12;

/// Link of a graph in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// Node to which the edge leads.
    pub to: u32,
    /// Non-negative weight: the one-way delay in seconds. Infinite if the edge is closed.
    pub weight: f64,
}

impl Edge {
    /// Whether the edge may be used now; an edge with the weight NaN is closed.
    pub fn is_open(&self) -> bool {
        self.weight < f64::INFINITY
    }
}

impl Graph {
    /// Replace the graph by one of `nodes` nodes with the undirected `links` (two nodes and a weight).
    pub fn rebuild(&mut self, nodes: usize, links: &[(u32, u32, f64)]) {
        // Counting sort by node: count, sum up, fill from the back.
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
        self.links.clear();
        self.has_negligible_edge = false;
        for (a, b, weight) in links.iter().rev().copied() {
            let both = [(a, b), (b, a)].map(|(from, to)| {
                let start = &mut self.starts[from as usize];
                *start -= 1;
                self.edges[*start as usize] = Edge { to, weight };
                *start
            });
            self.links.push(both);
            self.has_negligible_edge |= weight < NEGLIGIBLE;
        }
    }

    /// Whether the weight of some edge is so small that the sum of a distance and it may be the same distance.
    pub fn has_negligible_edge(&self) -> bool {
        self.has_negligible_edge
    }

    /// Number of nodes in the graph.
    pub fn nodes(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Edges that leave a node.
    pub fn edges(&self, node: u32) -> &[Edge] {
        let node = node as usize;
        &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Set the weight of every link to `weight(from, to)`; return whether a link has been opened or closed.
    pub fn reweigh(&mut self, weight: impl Fn(u32, u32) -> f64) -> bool {
        let mut changed = false;
        self.has_negligible_edge = false;
        for both in &self.links {
            let [there, back] = both.map(|index| self.edges[index as usize]);
            let weight = weight(back.to, there.to);
            changed |= there.is_open() != (Edge { to: there.to, weight }).is_open();
            self.has_negligible_edge |= weight < NEGLIGIBLE;
            for index in both {
                self.edges[*index as usize].weight = weight;
            }
        }
        changed
    }

    /// Write the connected components into `components`: for each node the lowest node to which it has a route.
    pub fn components(&self, components: &mut Vec<u32>) {
        const UNKNOWN: u32 = u32::MAX;
        components.clear();
        components.resize(self.nodes(), UNKNOWN);
        let mut pending = Vec::new();
        for root in 0..self.nodes() as u32 {
            if components[root as usize] != UNKNOWN {
                continue;
            }
            components[root as usize] = root;
            pending.push(root);
            while let Some(node) = pending.pop() {
                for edge in self.edges(node).iter().filter(|edge| edge.is_open()) {
                    let component = &mut components[edge.to as usize];
                    if *component == UNKNOWN {
                        *component = root;
                        pending.push(edge.to);
                    }
                }
            }
        }
    }
}

/// Dijkstra's algorithm with buffers that are reused at each step.
///
/// Among routes of the same length the router finds the one whose nodes were reached first; it
/// visits nodes at the same distance in ascending order.
#[derive(Debug, Clone, Default)]
pub struct Router {
    reached: Vec<Reached>,
    /// Number of the current search; entries of `reached` with another number are stale and need not be cleared.
    search: u32,
    /// Queue of (distance, node). The bits of a non-negative float have the same order as the float.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    search: u32,
    previous: u32,
    distance: f64,
}

impl Router {
    /// Write the nodes of the shortest route into `route`, including both ends, and return its
    /// length; `None` and an empty route if there is none.
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

    /// Return the links of both ends with which the path between the ends is shortest; among
    /// equally short paths, those with the lowest satellite ids.
    pub fn nearest_pair(&mut self, graph: &Graph, from: &[Link], to: &[Link]) -> Option<[Link; 2]> {
        self.begin(graph.nodes());
        for link in from {
            self.reach(link.satellite, link.satellite, link.delay_s);
        }
        let mut best: Option<(f64, Link)> = None;
        while let Some(Reverse((bits, node))) = self.queue.pop() {
            let distance = f64::from_bits(bits);
            // Every remaining node is at least as far away as the best path is long.
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

    /// Find the shortest routes from any of `from` to every node, for [`Router::reached`] and [`Router::route_back`].
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

    /// Distance of a node in the last search, and the node before it on the route (itself if the route begins there);
    /// `None` if the search did not reach it.
    pub fn reached(&self, node: u32) -> Option<(f64, u32)> {
        let reached = self.reached.get(node as usize)?;
        (reached.search == self.search).then_some((reached.distance, reached.previous))
    }

    /// Nodes of the last search's route to `node`, backwards from `node`.
    pub fn route_back(&self, node: u32) -> impl Iterator<Item = u32> {
        let before = |node: &u32| {
            let previous = self.reached[*node as usize].previous;
            (previous != *node).then_some(previous)
        };
        std::iter::successors(Some(node), before)
    }

    /// First node of the last search's route to `node`.
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
