"""A Stable Diffusion pipeline of SD-turbo's classes, small enough to be made on disk."""

import json
from pathlib import Path

import torch


def write_pipeline(folder: Path) -> Path:
    """Write a Stable Diffusion pipeline with random weights: seconds, not gigabytes."""
    from diffusers import (
        AutoencoderKL,
        EulerDiscreteScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{c}</w>" for c in letters)]
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    vocabulary.write_text(json.dumps({word: i for i, word in enumerate(words)}))
    merges.write_text("#version: 0.2\n")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        text = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=len(words),
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=77,
                projection_dim=16,
                bos_token_id=0,
                eos_token_id=1,
                pad_token_id=1,
            )
        )
        unet = UNet2DConditionModel(
            sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16),
            layers_per_block=1, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=16,
            attention_head_dim=4, norm_num_groups=4,
        )  # fmt: skip
        autoencoder = AutoencoderKL(
            block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=4,
        )  # fmt: skip
    made = StableDiffusionPipeline(
        vae=autoencoder,
        text_encoder=text,
        tokenizer=CLIPTokenizer(vocab=str(vocabulary), merges=str(merges), model_max_length=77),
        unet=unet,
        scheduler=EulerDiscreteScheduler(timestep_spacing="trailing", steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    made.save_pretrained(folder / "model", safe_serialization=True)
    return folder / "model"
