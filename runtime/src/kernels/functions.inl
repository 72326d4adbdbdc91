// The functions of an epilogue's steps and of softmax, each once: the same float32 operations in the same order for one
// lane (vector_scalar.h) and for sixteen, so that every set of kernels gives the same bits. Included after a vector
// header, which defines the type `Lanes` and its operations.
//
// Errors against the real functions are those of docs/format.md: at most 4 units in the last place.
namespace bitedge {
namespace {

// c[0]·x^(n-1) + ... + c[n-1], by Horner's rule.
template <int kCount>
inline __attribute__((always_inline)) Lanes polynomial(Lanes x, const float (&c)[kCount]) {
  Lanes y = f_set(c[0]);
  for (int i = 1; i < kCount; i++) y = f_fma(y, x, f_set(c[i]));
  return y;
}

inline Lanes f_negative(Lanes x) { return f_sub(f_zero(), x); }
inline Lanes f_magnitude(Lanes x) { return f_greater_of(f_negative(x), x); }
// y < min ? min : y > max ? max : y.
inline Lanes f_clamp(Lanes y, Lanes min, Lanes max) { return f_lesser_of(max, f_greater_of(min, y)); }

// exp(x) for x <= 0 = 2^n · exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; ln 2 in two parts, the first exact in products
// with n. Results that would be subnormal are 0.
inline Lanes exp_negative(Lanes x) {
  constexpr float kSeries[] = {1.98756915e-4f, 1.39819995e-3f, 8.33345205e-3f, 4.16657962e-2f,
                               1.66666657e-1f, 0.5f,           1.0f,           1.0f};
  const Lanes least = f_set(-87.33654f), inside = f_greater_of(least, x);
  const Lanes n = f_round(f_mul(inside, f_set(1.44269504f)));
  const Lanes r = f_fma(n, f_set(-1.42860677e-6f), f_fma(n, f_set(-0.693145752f), inside));
  return f_if_less(x, least, f_zero(), f_mul(polynomial(r, kSeries), f_power_of_two(n)));
}

// y·s / (1 + exp(-|x|)), where s is exp(x) for negative x, else 1: y times the logistic function of x = `at` + `rest`.
// Nothing cancels, whatever the sign.
inline Lanes times_logistic(Lanes y, Lanes at, Lanes rest) {
  const Lanes e = exp_negative(f_negative(f_magnitude(at)));
  const Lanes exact = f_fma(e, f_if_less(at, f_zero(), rest, f_negative(rest)), e);
  return f_div(f_mul(y, f_if_less(at, f_zero(), exact, f_set(1.0f))), f_add(f_set(1.0f), exact));
}

inline Lanes sigmoid(Lanes y) { return times_logistic(f_set(1.0f), y, f_zero()); }
inline Lanes silu(Lanes y) { return times_logistic(y, y, f_zero()); }

// (1 - t) / (1 + t) with t = exp(-2|y|); near 0, where that cancels, y + y³·P(y²).
inline Lanes tanh_of(Lanes y) {
  constexpr float kSeries[] = {-5.70498873e-3f, 2.06390888e-2f, -5.37397156e-2f, 1.33314422e-1f, -3.33332819e-1f};
  const Lanes square = f_mul(y, y), magnitude = f_magnitude(y), one = f_set(1.0f);
  const Lanes t = exp_negative(f_mul(f_set(-2.0f), magnitude));
  const Lanes far = f_div(f_sub(one, t), f_add(one, t));
  const Lanes near = f_fma(f_mul(y, square), polynomial(square, kSeries), y);
  return f_if_less(magnitude, f_set(0.625f), near, f_if_less(y, f_zero(), f_negative(far), far));
}

inline Lanes hardsigmoid(Lanes y) {
  return f_div(f_clamp(f_add(y, f_set(3.0f)), f_zero(), f_set(6.0f)), f_set(6.0f));
}
inline Lanes hardswish(Lanes y) {
  return f_div(f_mul(y, f_clamp(f_add(y, f_set(3.0f)), f_zero(), f_set(6.0f))), f_set(6.0f));
}

// y·Φ(y), Φ the normal distribution: near 0 it is 1/2 + y·P(y²). Elsewhere Φ(-a) = exp(-a²/2)·Q((a - 3) / (a + 3)), a²
// in two parts, since its rounding would count a²/2 times; Φ(a) = 1 - Φ(-a).
inline Lanes gelu(Lanes y) {
  constexpr float kNear[] = {-7.65420918e-6f, 1.13486378e-4f,  -1.18632999e-3f,
                             9.97332297e-3f,  -6.64903596e-2f, 3.98942292e-1f};
  constexpr float kFar[] = {1.23228485e-4f,  -3.12875927e-4f, -9.89610562e-4f, 2.9004463e-3f, 6.13337243e-3f,
                            -4.62131165e-2f, 1.23224944e-1f,  -2.06402615e-1f, 1.21513948e-1f};
  const Lanes magnitude = f_magnitude(y), a = f_lesser_of(f_set(8.0f), magnitude);  // beyond 8 it is 0 or y
  const Lanes square = f_mul(a, a), rest = f_fma(a, a, f_negative(square));
  const Lanes e = exp_negative(f_mul(f_set(-0.5f), square));
  const Lanes exact = f_fma(e, f_mul(f_set(-0.5f), rest), e);
  const Lanes t = f_div(f_sub(a, f_set(3.0f)), f_add(a, f_set(3.0f)));
  const Lanes tail = f_mul(exact, polynomial(t, kFar)), lost = f_mul(a, tail);
  const Lanes far = f_if_less(y, f_zero(), f_negative(lost), f_sub(y, lost));
  const Lanes near = f_mul(y, f_fma(y, polynomial(square, kNear), f_set(0.5f)));
  return f_if_less(magnitude, f_set(1.0f), near, far);
}

// y/2·(1 + tanh(√(2/π)·(y + 0.044715·y³))) = y times the logistic function of y·(c + d·y²), c = √(8/π), d = 0.044715·c.
// That argument is taken to twice the precision: its rounding would count as often as its size.
inline Lanes gelu_tanh(Lanes y) {
  const Lanes c = f_set(1.59576917f), c_rest = f_set(-4.53406805e-8f), d = f_set(7.13548139e-2f), d_rest = f_set(2.39883247e-9f);
  const Lanes x = f_clamp(y, f_set(-14.0f), f_set(14.0f));  // beyond it is 0 or y
  const Lanes square = f_mul(x, x), square_rest = f_fma(x, x, f_negative(square));
  const Lanes cube = f_mul(d, square);
  const Lanes cube_rest = f_fma(d, square_rest, f_fma(d_rest, square, f_fma(d, square, f_negative(cube))));
  const Lanes sum = f_add(c, cube), part = f_sub(sum, c);  // Knuth's exact sum
  const Lanes sum_rest = f_add(f_sub(c, f_sub(sum, part)), f_sub(cube, part));
  const Lanes at = f_mul(x, sum);
  const Lanes rests = f_add(f_add(sum_rest, cube_rest), c_rest);
  return times_logistic(y, at, f_fma(x, rests, f_fma(x, sum, f_negative(at))));
}

}  // namespace
}  // namespace bitedge
