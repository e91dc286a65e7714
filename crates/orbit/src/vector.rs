//! Three-dimensional vectors in metres.

use std::ops::{Add, Mul, Sub};

/// A position or a difference of positions, in metres; or a direction, without unit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Vec3 {
    /// Towards the equinox (inertial) or the prime meridian (earth-fixed).
    pub x: f64,
    /// 90 degrees east of `x`.
    pub y: f64,
    /// Towards the north pole.
    pub z: f64,
}

impl Vec3 {
    /// From its components.
    pub const fn new(x: f64, y: f64, z: f64) -> Self {
        Self { x, y, z }
    }

    /// The scalar product.
    pub fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    /// The square of the length.
    pub fn norm_squared(self) -> f64 {
        self.dot(self)
    }

    /// The length.
    pub fn norm(self) -> f64 {
        self.norm_squared().sqrt()
    }

    /// The straight distance to `other`, in metres.
    pub fn distance_m(self, other: Self) -> f64 {
        (self - other).norm()
    }
}

impl Add for Vec3 {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.x + other.x, self.y + other.y, self.z + other.z)
    }
}

impl Sub for Vec3 {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::new(self.x - other.x, self.y - other.y, self.z - other.z)
    }
}

impl Mul<f64> for Vec3 {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self::new(self.x * factor, self.y * factor, self.z * factor)
    }
}
