//! Shortest routes from one site to all nodes, searched again at each step of a slowly changing graph.
//!
//! Dijkstra's algorithm spends most of its time on its queue and on branches that no processor predicts. Here one pass
//! relaxes the edges of all nodes in the order of their distances at an earlier step, and keeps distances alone. The
//! pass is a whole search if no node gets nearer after its edges were relaxed; the edges of nodes that did are relaxed
//! again, nearest first. Nodes before others are found afterwards, on the few routes that are asked for.
//!
//! Distances are those of [`Router`] to the last bit, because both are the smallest sums over the routes, added up from
//! the site on. Routes are the same too: [`RepeatedSearch::before`] chooses among routes of the same length as the order
//! of Dijkstra's algorithm does.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::handover::Link;
use crate::route::{Graph, Router};

/// Order in which a site's search visits the nodes: by distance, of those that were reached when it was last sorted.
#[derive(Debug, Clone, Default)]
pub(crate) struct VisitingOrder {
    nodes: usize,
    reached: Vec<u32>,
}

/// Search with buffers that are reused for each site and step.
#[derive(Debug, Default)]
pub(crate) struct RepeatedSearch {
    /// Distance of each node; infinite if the search does not reach it.
    distances: Vec<f64>,
    /// Distance of each node when its edges were relaxed; infinite before.
    relaxed_at: Vec<f64>,
    /// Nodes whose edges have to be relaxed again, as in [`Router`].
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// Node before each node on the route to it, itself where routes begin; [`UNKNOWN`] until it is asked for.
    before: Vec<Cell<u32>>,
    router: Router,
    by_distance: Vec<(u64, u32)>,
}

const UNKNOWN: u32 = u32::MAX;

impl RepeatedSearch {
    /// Find the shortest routes from any of `from` to every node, for [`RepeatedSearch::distance`] and
    /// [`RepeatedSearch::route_back`]; `order` belongs to the site of `from`.
    pub(crate) fn search(&mut self, graph: &Graph, from: &[Link], order: &mut VisitingOrder) {
        self.begin(graph.nodes());
        if order.nodes != graph.nodes() {
            *order = VisitingOrder { nodes: graph.nodes(), reached: Vec::new() };
        }
        if graph.has_negligible_edge() {
            return self.search_with_router(graph, from);
        }
        for link in from {
            let known = &mut self.distances[link.satellite as usize];
            *known = known.min(link.delay_s);
        }
        self.relax_in_order(graph, &order.reached);
        self.queue_nearer();
        if !self.queue.is_empty() {
            self.relax_queued(graph);
            self.sort(order);
        }
        for link in from.iter().filter(|link| link.delay_s == self.distance(link.satellite)) {
            self.before[link.satellite as usize].set(link.satellite);
        }
    }

    /// Distance of a node in the last search, in seconds; infinite if the search did not reach it.
    pub(crate) fn distance(&self, node: u32) -> f64 {
        self.distances[node as usize]
    }

    /// Distance of every node in the last search, as [`Self::distance`] returns it.
    pub(crate) fn distances(&self) -> &[f64] {
        &self.distances
    }

    /// Nodes of the last search's route to `node`, backwards from `node`; the search reached it in `graph`.
    pub(crate) fn route_back(&self, graph: &Graph, node: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(node), move |node| {
            let before = self.before(graph, *node);
            (before != *node).then_some(before)
        })
    }

    /// Node before `node` on the shortest route to it, which the search has reached; the node itself where the route
    /// begins. Of several routes of the same length, such as the two ways around a
    /// plane, the route over the node that is nearer, or else has the lower number: the one that [`Router`] visits first.
    pub(crate) fn before(&self, graph: &Graph, node: u32) -> u32 {
        let known = &self.before[node as usize];
        if known.get() == UNKNOWN {
            known.set(node_before(graph, &self.distances, node));
        }
        known.get()
    }

    /// Node before each node, as [`Self::before`] returns it; `None` for a node that the search has not reached.
    pub(crate) fn nodes_before(&self, graph: &Graph) -> Vec<Option<u32>> {
        let before = |node| (self.distance(node) < f64::INFINITY).then(|| self.before(graph, node));
        (0..graph.nodes() as u32).map(before).collect()
    }

    fn begin(&mut self, nodes: usize) {
        self.distances.clear();
        self.distances.resize(nodes, f64::INFINITY);
        self.relaxed_at.clear();
        self.relaxed_at.resize(nodes, f64::INFINITY);
        self.before.clear();
        self.before.resize(nodes, Cell::new(UNKNOWN));
    }

    /// Relax the edges of all nodes.
    fn relax_in_order(&mut self, graph: &Graph, order: &[u32]) {
        let (distances, relaxed_at) = (&mut self.distances[..], &mut self.relaxed_at[..]);
        for node in order {
            let distance = distances[*node as usize];
            relaxed_at[*node as usize] = distance;
            for edge in graph.edges(*node) {
                let total = distance + edge.weight;
                let known = &mut distances[edge.to as usize];
                // A selection, not a branch; it keeps what is known if the weight is NaN.
                *known = if total < *known { total } else { *known };
            }
        }
    }

    /// Queue the nodes that got nearer after their edges were relaxed.
    fn queue_nearer(&mut self) {
        for (node, (distance, relaxed_at)) in (0..).zip(self.distances.iter().zip(&self.relaxed_at))
        {
            if distance != relaxed_at {
                self.queue.push(Reverse((distance.to_bits(), node)));
            }
        }
    }

    /// Relax the edges of queued nodes, and of those that get nearer by this.
    fn relax_queued(&mut self, graph: &Graph) {
        while let Some(Reverse((bits, node))) = self.queue.pop() {
            let distance = f64::from_bits(bits);
            if distance > self.distances[node as usize] {
                continue;
            }
            for edge in graph.edges(node) {
                let total = distance + edge.weight;
                let known = &mut self.distances[edge.to as usize];
                if total < *known {
                    *known = total;
                    self.queue.push(Reverse((total.to_bits(), edge.to)));
                }
            }
        }
    }

    fn sort(&mut self, order: &mut VisitingOrder) {
        self.by_distance.clear();
        let reached = (0..).zip(&self.distances).filter(|(_, distance)| **distance < f64::INFINITY);
        self.by_distance.extend(reached.map(|(node, distance)| (distance.to_bits(), node)));
        self.by_distance.sort_unstable();
        order.reached.clear();
        order.reached.extend(self.by_distance.iter().map(|(_, node)| *node));
    }

    fn search_with_router(&mut self, graph: &Graph, from: &[Link]) {
        self.router.search_all(graph, from);
        for node in 0..graph.nodes() as u32 {
            if let Some((distance, before)) = self.router.reached(node) {
                self.distances[node as usize] = distance;
                self.before[node as usize].set(before);
            }
        }
    }
}

/// Node before `node` on the shortest route to it, by the distances of all nodes; the node itself if there is none.
pub(crate) fn node_before(graph: &Graph, distances: &[f64], node: u32) -> u32 {
    let distance = |node: u32| distances[node as usize];
    let edges = graph.edges(node).iter();
    let ends_here = edges.filter(|edge| distance(edge.to) + edge.weight == distance(node));
    let key = |node: &u32| (distance(*node).to_bits(), *node);
    ends_here.map(|edge| edge.to).min_by_key(key).unwrap_or(node)
}
