"""Music, farms, courts, films, fitness, phones and animals: questions of tests/noise.py that were looked at once, after
those of noise_travel.py had been looked at; docs/45-curate.md has the figures."""

# ruff: noqa: E501
from __future__ import annotations

import random
import re

from tests.noise import Noise
from tests.noise_travel import typo_en

ALIKE = {
    "音": "因",
    "乐": "月",
    "几": "机",
    "话": "画",
    "价": "架",
    "电": "店",
    "影": "映",
    "票": "漂",
    "场": "厂",
    "演": "眼",
    "唱": "常",
    "师": "诗",
    "律": "率",
    "狗": "够",
    "养": "样",
    "猫": "毛",
    "食": "时",
    "物": "务",
    "练": "炼",
    "身": "深",
    "牛": "纽",
    "奶": "乃",
    "种": "钟",
    "收": "手",
    "获": "货",
    "法": "发",
    "院": "愿",
    "判": "盼",
    "屏": "瓶",
    "幕": "木",
    "修": "羞",
    "需": "须",
    "应": "英",
    "该": "盖",
    "能": "龙",
    "为": "位",
    "什": "十",
    "每": "美",
    "公": "工",
    "斤": "今",
    "钟": "终",
    "主": "住",
    "持": "池",
}


def typo_zh(text: str, dice: random.Random) -> str:
    """A character of the same or a near sound, or one left out or typed twice inside a word."""
    places = [at for at, char in enumerate(text) if char in ALIKE and ALIKE[char] not in "十"]
    if places and dice.random() < 0.75:
        at = dice.choice(places)
        return text[:at] + ALIKE[text[at]] + text[at + 1 :]
    at = dice.choice([m.start() for m in re.finditer(r"(?<=[\u4e00-\u9fff])[\u4e00-\u9fff](?=[\u4e00-\u9fff])", text)])
    return text[:at] + text[at] * dice.choice((0, 2)) + text[at + 1 :]


ENGLISH = Noise(
    asked=(
        "How many copies of the album did {singer} sell | in {n} weeks?", "Which instrument does {singer} play | at the festival in {place}?", "How much does a concert ticket for {singer} cost | in {place}?", "What is the harvest time of {crop} | in {place}?", "How many kilograms of {crop} grow | on a field of {n} hectares?", "Why do the leaves of {crop} turn yellow | after heavy rain?",
        "What sentence can a judge give | for stealing {n} bicycles?", "Does a witness have to appear | before the court of {place}?", "Who directed the movie {film}?", "How long is the film {film} | without the credits?", "How many push-ups should a beginner do | in {n} minutes?", "Is running healthier than {sport} | for the knees?",
        "Does the new {phone} have a better camera than the {phone2}?", "Why does the battery of my {phone} drain | within {n} hours?", "How do I delete old messages | from my {phone}?", "What do {animal}s eat | in the wild?", "How fast can a {animal} run | over {n} meters?", "Where do {animal}s sleep | during the cold season?", "How many teeth does an adult {animal} have?", "Can I keep a {animal} | in a small garden in {place}?",
        "A farmer has {n} cows and sells {m} of them. | How many cows are left?", "A runner finishes {n} kilometers in {m} minutes. | How fast is she?", "What is the phone number of the nearest police station | in {place}?", "When does the public swimming pool open | on holidays?", "Is it illegal to feed {animal}s | in the parks of {place}?",
    ),
    pools={"singer": ["Adele", "Shakira", "Bowie", "Rihanna", "Sting"], "place": ["Dublin", "Prague", "Austin", "Bogota", "Vienna", "Helsinki"], "crop": ["barley", "maize", "cotton", "rapeseed", "lentils"], "film": ["Casablanca", "Titanic", "Vertigo", "Gladiator", "Amelie"], "sport": ["swimming", "rowing", "cycling", "climbing"], "phone": ["Pixel", "Galaxy", "Xperia", "Nokia"], "animal": ["zebra", "badger", "hedgehog", "cheetah", "camel"]},
    numbers=(4, 6, 9, 10, 13, 16, 22, 45, 80, 150, 300),
    words={
        "synonym": {"copies": "units", "sell": "market", "album": "record", "play": "perform on", "festival": "fair", "concert": "show", "cost": "go for", "harvest time": "harvesting season", "grow": "are produced", "field": "piece of land", "heavy": "strong", "turn": "become", "sentence": "punishment", "stealing": "taking away", "have to": "need to", "appear": "show up", "court": "tribunal", "movie": "film", "film": "movie", "long": "lengthy", "beginner": "novice", "healthier": "better for your health", "better": "superior", "drain": "run down", "within": "in less than", "delete": "erase", "old": "previous", "eat": "feed on", "in the wild": "in nature", "fast": "quickly", "sleep": "rest", "cold season": "winter", "adult": "fully grown", "keep": "own", "small": "little", "garden": "yard", "farmer": "grower", "left": "remaining", "finishes": "completes", "nearest": "closest", "police station": "police office", "open": "start business", "holidays": "public holidays", "illegal": "against the law", "feed": "give food to", "Which": "What"},
        "abbreviation": {"weeks": "wks", "kilograms": "kg", "kilometers": "km", "minutes": "mins", "hours": "hrs", "meters": "m", "hectares": "ha", "phone number": "phone no.", "messages": "msgs", "without": "w/o", "should": "shd", "number": "num", "police": "PD", "battery": "batt", "camera": "cam", "after": "aft.", "people": "ppl"},
        "switch": {"album": "专辑", "instrument": "乐器", "concert": "音乐会", "ticket": "票", "harvest": "收获", "field": "田", "leaves": "叶子", "rain": "雨", "judge": "法官", "bicycles": "自行车", "witness": "证人", "court": "法院", "movie": "电影", "battery": "电池", "camera": "相机", "messages": "短信", "garden": "花园", "cows": "奶牛", "farmer": "农民", "knees": "膝盖", "teeth": "牙齿", "police station": "警察局", "swimming pool": "游泳池", "parks": "公园"},
        "contraction": {"What is": "What's", "Who directed": "Who's directed", "How long is": "How long's", "Is it": "Is it", "should a": "should a", "Where do": "Where'd", "Why does": "Why's", "does not": "doesn't", "Does a": "Does a", "Can I": "Can i", "is she": "'s she"},
        "attribute": {"album": "single", "sell": "record", "instrument": "song", "concert": "bus", "cost": "weigh", "harvest": "planting", "yellow": "brown", "after heavy": "before heavy", "judge": "lawyer", "stealing": "damaging", "witness": "juror", "directed": "produced", "long": "expensive", "without": "with", "push-ups": "squats", "beginner": "champion", "healthier": "cheaper", "knees": "lungs", "better camera": "bigger screen", "battery": "memory", "delete": "print", "messages": "photos", "eat": "fear", "fast": "far", "sleep": "hunt", "cold": "dry", "teeth": "toes", "adult": "young", "cows": "goats", "sells": "buys", "phone number": "address", "police": "fire", "open": "close", "holidays": "workdays", "feed": "photograph"},
        "unit": {"weeks": "months", "kilograms": "tons", "hectares": "acres", "minutes": "hours", "hours": "days", "kilometers": "miles", "meters": "yards"},
        "negation": {"Does ": "Doesn't ", "should a": "should a", "Can I": "Can't I", "Is it": "Isn't it", "Is ": "Isn't ", "can a judge": "can a judge not", "does the public": "does the public", "do {": "do not {", "Why do ": "Why do not "},
    },
    before=("Good day, ", "Hi team! ", "Hey, does anybody know: ", "I'm curious, ", "May I ask, ", "Could you kindly explain, ", "One question: ", "Pardon me, "),
    after=(" Much appreciated!", " Thanks a million!", " Any ideas?", " Thank you for reading.", " I look forward to your reply.", " Thx"),
    typo=typo_en,
    chinese=False,
)  # fmt: skip

CHINESE = Noise(
    asked=(
        "{singer}的专辑|{n}周卖了多少张？", "{singer}在{place}音乐节上|演奏什么乐器？", "{place}|{singer}演唱会的门票多少钱？", "{place}的{crop}|什么时候收获？", "{n}公顷的田|能种出多少公斤{crop}？", "下大雨以后|{crop}的叶子为什么会变黄？", "偷{n}辆自行车|法官会怎么判？", "证人必须到{place}的法院|出庭吗？", "电影《{film}》的导演|是谁？", "不算片尾字幕|《{film}》有多长？", "初学者{n}分钟|应该做多少个俯卧撑？", "对膝盖来说|跑步比{sport}更健康吗？", "新款{phone}的摄像头|比{phone2}好吗？",
        "为什么我的{phone}电池|{n}个小时就没电了？", "怎样从{phone}里|删除旧短信？", "野外的{animal}|吃什么？", "{n}米的距离|{animal}能跑多快？", "寒冷的季节|{animal}在哪里睡觉？", "成年{animal}|有多少颗牙齿？", "{place}的小花园里|可以养{animal}吗？", "农民有{n}头奶牛，卖掉{m}头，|还剩多少头奶牛？", "她{m}分钟跑了{n}公里，|速度是多少？", "{place}最近的派出所|电话号码是多少？", "公共游泳池|节假日几点开门？", "在{place}的公园里|喂{animal}违法吗？",
    ),
    pools={"singer": ["周杰伦", "王菲", "邓丽君", "夏奇拉", "阿黛尔"], "place": ["都柏林", "布拉格", "杭州", "波哥大", "维也纳", "青岛"], "crop": ["大麦", "玉米", "棉花", "油菜", "小扁豆"], "film": ["卡萨布兰卡", "泰坦尼克号", "迷魂记", "角斗士", "霸王别姬"], "sport": ["游泳", "划船", "骑车", "爬山"], "phone": ["小米", "华为", "诺基亚", "三星"], "animal": ["斑马", "獾", "刺猬", "猎豹", "骆驼"]},
    numbers=(4, 6, 9, 10, 13, 16, 22, 45, 80, 150, 300),
    words={
        "synonym": {"专辑": "唱片", "卖了": "销售了", "演奏": "弹奏", "演唱会": "音乐会", "多少钱": "什么价钱", "收获": "收割", "种出": "生产", "田": "农田", "下大雨": "暴雨", "变黄": "发黄", "偷": "盗窃", "怎么判": "如何判决", "必须": "一定要", "电影": "影片", "不算": "除去", "初学者": "新手", "应该": "需要", "健康": "有益", "摄像头": "相机", "没电": "用完", "怎样": "如何", "删除": "清除", "短信": "信息", "野外": "野生", "距离": "路程", "寒冷": "冬天", "睡觉": "休息", "成年": "成熟", "可以": "允许", "养": "饲养", "农民": "农夫", "卖掉": "出售", "最近": "离得最近", "派出所": "警察局", "节假日": "放假", "几点": "什么时间", "违法": "犯法", "开门": "开放", "喂": "喂养", "季节": "时节"},
        "abbreviation": {"公斤": "kg", "公里": "km", "分钟": "min", "个小时": "h", "公顷": "ha", "米的": "m的", "电话号码": "电话", "摄像头": "摄像", "自行车": "单车", "公共游泳池": "泳池", "音乐节": "乐节", "演唱会": "演会", "门票": "票", "节假日": "假日"},
        "switch": {"专辑": "album", "乐器": "instrument", "演唱会": "concert", "门票": "ticket", "叶子": "leaves", "法官": "judge", "自行车": "bicycle", "证人": "witness", "法院": "court", "电影": "movie", "导演": "director", "电池": "battery", "摄像头": "camera", "短信": "SMS", "花园": "garden", "奶牛": "cow", "农民": "farmer", "膝盖": "knee", "牙齿": "teeth", "派出所": "police station", "游泳池": "swimming pool", "公园": "park"},
        "contraction": {"什么": "啥", "什么时候": "何时", "为什么": "为啥", "怎么": "咋", "怎样": "咋", "没电": "没电", "应该": "该", "必须": "须", "可以": "可", "哪里": "哪", "多少": "几", "还剩": "剩", "几点": "几时"},
        "attribute": {"专辑": "单曲", "卖了": "送了", "乐器": "歌曲", "门票": "车票", "多少钱": "多少张", "收获": "播种", "变黄": "变黑", "以后": "以前", "法官": "律师", "偷": "毁坏", "证人": "陪审员", "导演": "编剧", "多长": "多贵", "俯卧撑": "深蹲", "初学者": "冠军", "健康": "便宜", "膝盖": "肺", "摄像头": "屏幕", "电池": "内存", "删除": "打印", "短信": "照片", "吃什么": "怕什么", "多快": "多远", "睡觉": "捕猎", "寒冷": "干燥", "牙齿": "脚趾", "成年": "幼年", "奶牛": "山羊", "卖掉": "买进", "电话号码": "地址", "派出所": "消防站", "开门": "关门", "节假日": "工作日", "喂": "拍"},
        "unit": {"周卖": "月卖", "公斤": "吨", "公顷": "亩", "分钟": "小时", "个小时": "天", "公里": "英里", "米的": "尺的"},
        "negation": {"必须": "不必", "会变": "不会变", "可以": "不可以", "应该": "不应该", "能种": "不能种", "更健康": "不健康", "违法": "不违法", "好吗": "不好吗"},
    },
    before=("您好！", "大家早上好，", "请问有谁知道，", "我很好奇，", "冒昧问一句，", "帮忙解释一下，", "有一个问题：", "抱歉打扰，"),
    after=("感激不尽！", "谢谢解答！", "有人知道吗？", "期待您的回复。", "谢啦", "万分感谢。"),
    typo=typo_zh,
    chinese=True,
)  # fmt: skip
