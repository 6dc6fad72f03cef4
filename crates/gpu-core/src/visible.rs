//! `CUDA_VISIBLE_DEVICES`: which devices a program sees.
