//! One binary for all tests of the crate: linking takes longer than most of them.

mod applications;
mod blind;
mod classes;
mod devices;
mod flows;
mod hosts;
mod isolation;
mod kernel_cc;
mod lab;
mod link;
mod links;
mod marks;
mod programs;
