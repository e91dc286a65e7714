//! One binary for all tests of the crate: linking takes longer than most of them.

mod all_pairs;
mod computed;
mod damaged;
mod exports;
mod failures;
mod field_logs;
mod ground;
mod hypatia;
mod jitter;
mod leoem;
mod leoem_log;
mod loads;
mod measured;
mod mirror;
mod nearest;
mod network;
mod outage;
mod recorded;
mod route_events;
mod routes;
mod routings;
mod shells;
mod simple_pairs;
